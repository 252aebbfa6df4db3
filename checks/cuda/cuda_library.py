"""The loader takes the driver's own libcuda.so.1.

What it means
libcuda is the half of the driver that CUDA programs load. Toolkits bring a stub of it, to link with, and forward-compatibility
packages (cuda-compat) bring one of another release. Where the loader finds one of those first, CUDA does not start.

How it is judged
The file that a program has really loaded (/proc/self/maps). One from a `stubs` folder, or error 34, is a stub. One whose
release differs from the kernel module's is a fault where CUDA does not start with it.

Known exceptions
A cuda-compat that is newer than the driver is what that package is for; whether the GPU allows it is judged by cuda-compat.
What a container was not given is judged by container-gpu-access, what Windows lends to WSL by the checks of WSL, and a
release that differs in the usual folders by driver-version.

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

OUT_OF_THIS_SHELL = Fix("In this shell: take it off the loader's path", "export LD_LIBRARY_PATH=<library_path>", where="shell")
IN_AN_IMAGE = Fix("Where an image sets it: take it out of the Dockerfile's ENV, or of the -e of docker run", on=("container",))

STUB = Problem(
    id="stub-libcuda-loaded",
    title="Programs load the toolkit's stub of libcuda instead of the driver",
    why="The stub is only there to link with: every call to it returns error 34. Its folder belongs on LIBRARY_PATH (for the "
    "linker), never on LD_LIBRARY_PATH or in /etc/ld.so.conf.d (for the loader).",
    action=Action.FIX_CONFIG,
    fixes=(
        OUT_OF_THIS_SHELL,
        look("For good: delete the line that names the stubs, then renew the loader's cache", f"grep -n stubs {FILES}"),
        look("Where a link leads to the stub: delete it", "find / -xdev -name 'libcuda.so*' -lname '*stubs*' 2>/dev/null"),
        IN_AN_IMAGE,
    ),
    references=("https://github.com/numba/numba/issues/8985", "https://github.com/NVIDIA/warp/issues/219"),
)

MISSING = Problem(
    id="cuda-driver-library-missing",
    title="The driver's libcuda.so.1 is not installed",
    why="The kernel module and NVML are there, so that nvidia-smi works, but the package with the driver's CUDA library is not: "
    "no CUDA program can start. A toolkit or a wheel does not bring it.",
    action=Action.INSTALL,
    fixes=install_on(
        "Install the CUDA part of the driver that is running",
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
    title="libcuda.so.1 is there, but cannot be loaded",
    why="The file is empty, is not readable, is for another architecture, or needs a library that is missing. Empty files are "
    "left in images that were built or saved while the NVIDIA runtime had its libraries mounted.",
    action=Action.INSTALL,
    fixes=(
        look("See which file it is, and what it lacks", "ls -lL <files>; ldd <files>", verify=VERIFY),
        Fix(
            "In the image: remove the empty files, so that the engine can put the driver's there",
            "find /usr -name 'lib*.so*' -size 0 \\( -name 'libcuda*' -o -name 'libnvidia*' \\) -delete && ldconfig",
            risk="destructive",
            on=("container",),
            kind="set",
        ),
        Fix("On a host: install the driver's packages again", verify=VERIFY, on=("host",), recipe="reinstall"),
    ),
)

SHADOWED = Problem(
    id="container-compat-lib-shadows-driver",
    title="The image's cuda-compat hides the newer driver of the host",
    why="The image brings a forward-compatibility libcuda, made for older drivers. The host's driver is newer, so its own "
    "libcuda must be used; the image's is found first and does not fit the kernel module (error 803).",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "In this container: the host's library first",
            "export LD_LIBRARY_PATH=<library_path>",
            verify="nvidia-smi",
            where="shell",
        ),
        Fix("In the image: remove the compatibility libraries", "rm -rf <folder> && ldconfig", risk="destructive", kind="set"),
        Fix("Let the engine decide, which compares the releases: keep the image's ENTRYPOINT, take /compat out of its ENV"),
    ),
    references=("https://github.com/gpustack/gpustack/issues/4678", "https://github.com/ai-dynamo/nixl/issues/441"),
)

MIXED = Problem(
    id="bare-metal-803-mixed-libcuda",
    title="Programs load a libcuda of another release than the kernel module",
    why="libcuda and the kernel module must come from one release. A copy of another release is found first: a cuda-compat, "
    "or what is left of another installation.",
    action=Action.FIX_CONFIG,
    fixes=(
        OUT_OF_THIS_SHELL,
        look("For good: delete the line that names its folder, then renew the loader's cache", f"grep -n <folder> {FILES}"),
        look("See who put it there", "dpkg -S <library> || rpm -qf <library>", on=("debian", "rhel", "suse")),
        Fix("In a conda environment", "conda remove cuda-compat", "disruptive", on=("conda",), kind="install"),
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
    """What a program has loaded; where that died, what the loader would take."""
    try:
        return facts.cuda.library
    except Unavailable:
        library = facts.libraries.resolved("libcuda.so.1")
        if library is None:
            raise
        return library.real_path


def not_loaded(facts: Facts) -> Finding:
    error = facts.cuda.load_error or "no reason was given"
    if not error.startswith(NOT_FOUND):
        broken = BROKEN.found(error, {"error": error, "files": _broken_files(facts, error)})
        return replace(broken, because=IMAGE.id)
    if facts.system.wsl:
        raise Skip("libcuda is not there; under WSL it comes from Windows, which the checks of WSL judge")
    if facts.system.is_container:
        raise Skip("libcuda is not in this container, which container-gpu-access judges", Skip.NOT_INSTALLED)
    if facts.driver.module_version is None or facts.nvml.library is None:
        raise Skip("no part of the driver is here", Skip.NOT_INSTALLED)
    if "nvidia_vgpu_vfio" in facts.driver.loaded_modules:
        raise Skip("this host lends its GPUs as vGPUs: CUDA is in the virtual machines", Skip.UNSUPPORTED)
    return MISSING.found("no libcuda.so.1, although the kernel module and NVML are there", {"error": error})


def _broken_files(facts: Facts, error: str) -> list[str]:
    """The file that the loader complains of, else those that it may have tried."""
    if error.startswith("/"):
        return [error.partition(":")[0]]
    tried = {library.path for library in facts.libraries.all if library.soname == "libcuda.so.1" and not library.is_compat}
    return sorted(tried) or ["/usr/lib/libcuda.so.1"]


def of_another_release(facts: Facts, library: str) -> Iterator[Finding]:
    module, release = facts.driver.module_version, release_of(library)
    if module is None or release is None or release == module or facts.cuda.init_code == 0:
        return
    if is_compat(library) and Version(release) > Version(module):
        return  # what the package is for: cuda-compat says whether this GPU allows it
    problem = SHADOWED if is_compat(library) and facts.system.is_container else MIXED
    folder = posixpath.dirname(library)
    yield problem.found(
        f"{library} is loaded, found through {_source(facts, folder)}; the kernel module is {module}",
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
    """What LD_LIBRARY_PATH should be; with the driver's own folder in front where the wrong one is found without it."""
    own = [other.directory for other in facts.libraries.named("libcuda") if needs_own and _fits(facts, other.version)]
    kept = (entry for entry in facts.environment.library_path if not _is_meant(entry, part) and not _is_compat(entry))
    return ":".join(dict.fromkeys((*own[:1], *kept)))


def _fits(facts: Facts, release: str | None) -> bool:
    return release is not None and release == facts.driver.module_version


def _source(facts: Facts, part: str) -> str:
    """What leads the loader to a folder, or to one whose path ends in a word."""
    try:
        if any(_is_meant(entry, part) for entry in facts.environment.library_path):
            return VARIABLE
        for file, folders in facts.libraries.configured_directories.items():
            if any(_is_meant(folder, part) for folder in folders):
                return file
    except Unavailable:
        return "an unknown way"
    return "a link, or the program's own path"


def _is_meant(folder: str, part: str) -> bool:
    """part: a folder, or the last word of one."""
    # CUDA 13.0's compat is reached by names such as /usr/local/cuda/compat, which lead to /usr/local/cuda-13.0/compat.
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
