"""The loader finds the driver's own libcuda.so.1.

What it means
libcuda is the part of the driver that CUDA programs load. Toolkits contain a stub of it to link with, and forward-compatibility
packages (cuda-compat) contain a libcuda of another release. If the loader finds one of those first, CUDA does not start.

How it is judged
The check looks at the file that a program really loaded (/proc/self/maps). A file from a `stubs` folder, or one that returns
error 34, is a stub. A file whose release differs from the kernel module's is a fault if CUDA does not start with it.

Known exceptions
A cuda-compat that is newer than the driver is intended; the check cuda-compat judges whether the GPU supports it. Other checks
report a libcuda that a container did not get (container-gpu-access), that Windows should provide (the checks of WSL), or that has
another release in the standard folders (driver-version).

References
https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
https://github.com/numba/numba/issues/8985
https://github.com/NVIDIA/nvidia-docker/issues/1256
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.cuda import is_compat, release_of
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import install_on, look
from gpudoctor.judging.python.driver_libraries import IMAGE
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Unavailable

MISMATCH = 803
VARIABLE = "LD_LIBRARY_PATH"
STUB_CODE = 34
PRELOADED = "ld-preload-cuda-library"
NOT_FOUND = "libcuda.so.1: cannot open shared object file: No such file"
VERIFY = "ldconfig -p | grep libcuda.so.1"
FILES = "~/.bashrc ~/.profile ~/.zshrc /etc/environment /etc/profile.d/*.sh /etc/ld.so.conf.d/*.conf"

OUT_OF_THIS_SHELL = Fix("In this shell: remove it from the loader's path", "export LD_LIBRARY_PATH=<library_path>", where="shell")
IN_AN_IMAGE = Fix("If an image sets it: remove it from the Dockerfile's ENV or from -e of docker run", on=("container",))

STUB = Problem(
    id="stub-libcuda-loaded",
    title="Programs load the toolkit's stub of libcuda instead of the driver",
    why="The stub is only for linking: every call to it returns error 34. Its folder belongs on LIBRARY_PATH (for the linker), "
    "never on LD_LIBRARY_PATH or in /etc/ld.so.conf.d (for the loader).",
    action=Action.FIX_CONFIG,
    fixes=(
        OUT_OF_THIS_SHELL,
        look(
            "To fix it permanently: delete the line that names the stubs, then run ldconfig",
            f"grep -sn stubs {FILES} || echo 'in none of these files'",
        ),
        look("If a symbolic link points to the stub: delete it", "find / -xdev -name 'libcuda.so*' -lname '*stubs*' 2>/dev/null"),
        IN_AN_IMAGE,
    ),
    references=("https://github.com/numba/numba/issues/8985", "https://github.com/NVIDIA/warp/issues/219"),
)

MISSING = Problem(
    id="cuda-driver-library-missing",
    title="The driver's libcuda.so.1 is not installed",
    why="The kernel module and NVML are installed, so nvidia-smi works, but the package with the driver's CUDA library is "
    "missing: no CUDA program can start. A toolkit or a wheel does not include it.",
    action=Action.INSTALL,
    fixes=install_on(
        "Install the CUDA libraries of the running driver",
        recipe="libraries",
        verify=VERIFY,
        debian="sudo apt install libnvidia-compute-<branch> || sudo apt install libcuda1",
        rhel="sudo dnf install nvidia-driver-cuda-libs || sudo dnf install xorg-x11-drv-nvidia-cuda-libs",
        suse="sudo zypper install nvidia-compute-G06",
        arch="sudo pacman -S nvidia-utils",
        other="sudo sh NVIDIA-Linux-*-<driver>.run",
    ),
    references=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",),
)

BROKEN = Problem(
    id="cuda-driver-library-broken",
    title="libcuda.so.1 exists, but cannot be loaded",
    why="The file is empty, not readable, for another architecture, or needs a library that is missing. Empty files remain in "
    "images that were built or saved while the NVIDIA runtime had its libraries mounted.",
    action=Action.INSTALL,
    fixes=(
        look("Show the file and its missing libraries", "ls -lL <files>; ldd <files>", verify=VERIFY),
        Fix(
            "In the image: remove the empty files, so that the engine can mount the driver's",
            "find /usr -name 'lib*.so*' -size 0 \\( -name 'libcuda*' -o -name 'libnvidia*' \\) -delete && ldconfig",
            risk="destructive",
            on=("container",),
            kind="set",
        ),
        Fix("On a host: reinstall the driver's packages", verify=VERIFY, on=("host",), recipe="reinstall"),
    ),
)

RELINK = Fix("Let ldconfig renew the link", "sudo ldconfig", verify=VERIFY, on=("host",), kind="set", needs=("root",))
SHADOWED = Problem(
    id="container-compat-lib-shadows-driver",
    title="The image's cuda-compat hides the newer driver of the host",
    why="The image contains a forward-compatibility libcuda for older drivers. The host's driver is newer, so its own libcuda "
    "must be used. The image's libcuda is found first and does not match the kernel module (error 803).",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "In this container: put the host's library first",
            "export LD_LIBRARY_PATH=<library_path>",
            verify="nvidia-smi",
            where="shell",
        ),
        Fix(
            "In the image: remove the compatibility libraries",
            "find <folder> -maxdepth 1 \\( -name 'libcuda*' -o -name 'libnvidia*' \\) -delete && ldconfig",
            risk="destructive",
            kind="set",
        ),
        Fix("Let the engine choose by release: keep the image's ENTRYPOINT, and remove /compat from its ENV"),
    ),
    references=("https://github.com/gpustack/gpustack/issues/4678", "https://github.com/ai-dynamo/nixl/issues/441"),
)

MIXED = Problem(
    id="bare-metal-803-mixed-libcuda",
    title="Programs load a libcuda of another release than the kernel module",
    why="libcuda and the kernel module must come from the same release. A copy of another release is found first: a cuda-compat, "
    "or a leftover of another installation.",
    action=Action.FIX_CONFIG,
    fixes=(
        OUT_OF_THIS_SHELL,
        look(
            "To fix it permanently: delete the line that names its folder, then run ldconfig",
            f"grep -sn <folder> {FILES} || echo 'in none of these files'",
        ),
        look("Find the package that installed it", "dpkg -S <library> || rpm -qf <library>", on=("debian", "rhel", "suse")),
        Fix(
            "In a conda environment: remove cuda-compat", "conda remove cuda-compat", "disruptive", on=("conda",), kind="install"
        ),
    ),
    references=("https://github.com/easydiffusion/easydiffusion/issues/379",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    library = loaded(facts)
    if library is None:
        yield not_loaded(facts)
    elif "/stubs/" in library or _init_code(facts) == STUB_CODE:
        found = STUB.found(f"{library} is a stub, found through {_source(facts, 'stubs')}", _evidence(facts, library, "stubs"))
        yield replace(found, because=PRELOADED)
    else:
        yield from (replace(found, because=PRELOADED) for found in of_another_release(facts, library))


def loaded(facts: Facts) -> str | None:
    """The libcuda that a program loaded; if that program died, the one that the loader would find."""
    try:
        return facts.cuda.library
    except Unavailable:
        library = facts.libraries.resolved("libcuda.so.1")
        if library is None:
            raise
        return library.real_path


def not_loaded(facts: Facts) -> Finding:
    error = facts.cuda.load_error or "no reason given"
    if not error.startswith(NOT_FOUND):
        broken = BROKEN.found(error, {"error": error, "files": _broken_files(facts, error)})
        return replace(broken, because=IMAGE.id)
    if facts.system.wsl:
        raise Skip("libcuda was not found; under WSL it comes from Windows, see the checks of WSL")
    if facts.system.is_container:
        raise Skip("libcuda was not found in this container, see container-gpu-access", Skip.NOT_INSTALLED)
    if facts.driver.module_version is None or facts.nvml.library is None:
        raise Skip("the driver is not loaded or not installed", Skip.NOT_INSTALLED)
    if "nvidia_vgpu_vfio" in facts.driver.loaded_modules:
        raise Skip("this host shares its GPUs as vGPUs: CUDA runs in the virtual machines", Skip.UNSUPPORTED)
    words = "libcuda.so.1 was not found, although the kernel module and NVML are present"
    link = next((one for one in facts.libraries.all if one.soname == "libcuda.so.1" and one.size is None), None)
    if link is None:
        return MISSING.found(words, {"error": error})
    words += f": {link.path} is a link to {link.real_path}, which does not exist"
    is_there = any(_fits(facts, one.version) for one in facts.libraries.named("libcuda") if one.size)
    return replace(MISSING, fixes=(RELINK, *MISSING.fixes) if is_there else MISSING.fixes).found(words, {"error": error})


def _broken_files(facts: Facts, error: str) -> list[str]:
    """The file in the loader's error, else the files that it may have tried."""
    if error.startswith("/"):
        return [error.partition(":")[0]]
    tried = {library.path for library in facts.libraries.all if library.soname == "libcuda.so.1" and not library.is_compat}
    return sorted(tried) or ["/usr/lib/libcuda.so.1"]


def of_another_release(facts: Facts, library: str) -> Iterator[Finding]:
    module, release = facts.driver.module_version, release_of(library)
    if module is None or release is None or release == module or facts.cuda.init_code == 0:
        return
    if is_compat(library) and Version(release) > Version(module):
        return  # intended use of the package: the check cuda-compat judges it
    problem = SHADOWED if is_compat(library) and facts.system.is_container else MIXED
    folder = posixpath.dirname(library)
    yield problem.found(
        f"{library} is loaded (found through {_source(facts, folder)}), but the kernel module is {module}",
        {"module": module, "release": release, "folder": folder, **_evidence(facts, library, folder)},
        confidence=Confidence.CONFIRMED if facts.cuda.init_code == MISMATCH else Confidence.LIKELY,
    )


def _init_code(facts: Facts) -> int | None:
    return known(lambda: facts.cuda.init_code)


def _evidence(facts: Facts, library: str, part: str) -> dict[str, Any]:
    source = _source(facts, part)
    return {
        "library": library,
        "found_through": source,
        "init": _init_code(facts),
        "library_path": _library_path(facts, part, source != VARIABLE),
    }


def _library_path(facts: Facts, part: str, needs_own: bool) -> str:
    """The LD_LIBRARY_PATH to set; with the driver's folder first if the wrong library is found without the variable."""
    own = [other.directory for other in facts.libraries.named("libcuda") if needs_own and _fits(facts, other.version)]
    kept = (entry for entry in facts.environment.library_path if not _is_meant(entry, part) and not _is_compat(entry))
    return ":".join(dict.fromkeys((*own[:1], *kept)))


def _fits(facts: Facts, release: str | None) -> bool:
    return release is not None and release == facts.driver.module_version


def _source(facts: Facts, part: str) -> str:
    """What makes the loader search a folder (given by its path or its last part)."""
    try:
        if any(_is_meant(entry, part) for entry in facts.environment.library_path):
            return VARIABLE
        for file, folders in facts.libraries.configured_directories.items():
            if any(_is_meant(folder, part) for folder in folders):
                return file
    except Unavailable:
        return "an unknown path"
    return "a symbolic link or the program's own search path"


def _is_meant(folder: str, part: str) -> bool:
    """part: a folder, or the last part of its path."""
    # CUDA 13.0's compat folder has names such as /usr/local/cuda/compat, which lead to /usr/local/cuda-13.0/compat.
    path = folder.rstrip("/")
    return part in (path, posixpath.basename(path)) or (_is_compat(part) and _is_compat(folder))


def _is_compat(folder: str) -> bool:
    return "compat" in folder.split("/")


def summary(facts: Facts) -> str:
    return loaded(facts) or ""


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(STUB, MISSING, BROKEN, SHADOWED, MIXED),
    needs=("driver-version", "container-gpu-access", "wsl-gpu", "wsl-driver"),
)
