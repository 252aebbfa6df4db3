"""Triton can compile: a C compiler, Python's headers, a libcuda to link with, and an assembler that knows the GPU.

What it means
Triton, and with it torch.compile and vLLM, compiles a small C program for this Python on its first run and links it with the
driver's libcuda. PyTorch without torch.compile needs none of this, but always installs Triton.

How it is judged
- gcc or clang is on PATH, or CC names a compiler. Python.h is in the include folder of this Python. Either is reported as missing
  if something here lets Triton compile (vLLM, Unsloth, a TRITON_ or TORCHINDUCTOR_ variable ...), or if compiling has failed
  because of it.
- libcuda is found where the installed release looks: in TRITON_LIBCUDA_PATH, else in the folders of the loader's cache, else in
  LD_LIBRARY_PATH. Releases before 3.6 link with -lcuda, which needs a file libcuda.so; later ones use libcuda.so.1. It is only a
  note while nothing here lets Triton compile and nothing has failed.
- The assembler (ptxas) in this release's wheel, or the one that TRITON_PTXAS_PATH names, is of a CUDA release that supports the
  GPU.

Known exceptions
A libcuda.so in LIBRARY_PATH (a toolkit's stub) or in one of the linker's own folders also works. A folder in TRITON_LIBCUDA_PATH
that was not examined is assumed to be right. Without a CUDA driver, Triton cannot use the GPU and the check is skipped.

References
https://github.com/triton-lang/triton/pull/1981
https://github.com/triton-lang/triton/pull/3053
https://github.com/vllm-project/vllm/issues/12505
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import install_on
from gpudoctor.judging.python import run_time_builds
from gpudoctor.judging.python.triton_assembler import TOO_OLD, assembler
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

TARGET = "<python> -c 'from triton.runtime import driver; print(driver.active.get_current_target())'"
LINKS_BY_SONAME = Version("3.6")  # "-l:libcuda.so.1" instead of "-lcuda"
LOOKS_FOR_SONAME = Version("3.0")
READS_VARIABLES = Version("2.2")  # TRITON_LIBCUDA_PATH and LD_LIBRARY_PATH
LINKER_FOLDERS = ("/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/lib", "/usr/local/lib")

NO_COMPILER = Problem(
    id="c-compiler-missing",
    title="Triton and torch.compile find no C compiler",
    why="Triton compiles a small C program for every kind of kernel. Without gcc or clang, torch.compile, vLLM and others fail "
    "with 'Failed to find C compiler'.",
    action=Action.INSTALL,
    status=Status.WARN,
    latent=True,
    fixes=(
        *install_on(
            "Install gcc",
            verify="gcc --version",
            debian="sudo apt install gcc libc6-dev",
            rhel="sudo dnf install gcc glibc-devel",
            suse="sudo zypper install gcc glibc-devel",
            arch="sudo pacman -S gcc",
        ),
        Fix(
            "Install gcc from conda, which sets CC",
            "conda install -c conda-forge gcc",
            verify="echo $CC",
            on=("conda",),
            kind="install",
        ),
        Fix("Install gcc or clang, or set CC to a compiler", verify="gcc --version", on=("other",)),
    ),
)

NO_HEADERS = Problem(
    id="triton-python-h-missing",
    title="Python's header files are missing, so Triton cannot compile",
    why="Triton's launcher includes Python.h. Distributions ship it in a separate package; Pythons of conda, uv and pyenv "
    "include it.",
    action=Action.INSTALL,
    status=Status.WARN,
    latent=True,
    fixes=(
        *install_on(
            "Install the headers of this Python",
            verify=TARGET,
            debian="sudo apt install python<python_version>-dev",
            rhel="sudo dnf install python<python_version>-devel || sudo dnf install python3-devel",
            suse="sudo zypper install python<digits>-devel || sudo zypper install python3-devel",
            arch="sudo pacman -S python",
        ),
        Fix(
            "If they cannot be installed: use a Python that includes them",
            "uv venv --managed-python --python <python_version>",
            kind="install",
        ),
    ),
)

LINK = Fix(
    "Create the link next to the library",
    "sudo ln -s libcuda.so.1 <folder>/libcuda.so",
    verify=TARGET,
    kind="set",
    needs=("root",),
)
CACHE = Fix(
    "Add the library's folder to the loader's cache, with the link that older Triton releases need",
    "echo <folder> | sudo tee /etc/ld.so.conf.d/libcuda.conf && sudo ldconfig && sudo ln -sf libcuda.so.1 <folder>/libcuda.so",
    verify=TARGET,
    kind="set",
    needs=("root",),
)
OWN_LINKS = Fix(
    "Without root: link the library into a folder in your home",
    "mkdir -p ~/.cache/libcuda && ln -sf <folder>/libcuda.so.1 ~/.cache/libcuda/libcuda.so && "
    "ln -sf <folder>/libcuda.so.1 ~/.cache/libcuda/libcuda.so.1 && export TRITON_LIBCUDA_PATH=~/.cache/libcuda",
    verify=TARGET,
    where="shell",
)
NO_LIBCUDA = Problem(
    id="triton-cannot-find-lcuda",
    title="Triton cannot link with libcuda",
    why="The driver is installed, but the linker needs libcuda under a certain name and in a folder that Triton "
    "searches: 'cannot find -lcuda' or 'libcuda.so cannot found'.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(CACHE, OWN_LINKS),
    references=(
        "https://github.com/triton-lang/triton/pull/1981",
        "https://github.com/triton-lang/triton/pull/3053",
        "https://github.com/vllm-project/vllm/issues/12505",
    ),
)


def installed(facts: Facts) -> str:
    """The version of Triton."""
    package = facts.python.package("triton") or facts.python.package("pytorch-triton")
    if package is None:
        raise Skip("Triton is not installed in this Python")
    if facts.cuda.library is None:
        raise Skip("no CUDA driver is available to Triton")
    return package.version


def judge(facts: Facts) -> Iterator[Finding]:
    version = Version(installed(facts))
    user = run_time_builds.of_triton(facts)
    if not has_compiler(facts):
        yield run_time_builds.wanted_by(user, NO_COMPILER.found("neither gcc nor clang is on PATH, and CC is not set"))
    if not facts.python.has_headers:
        folder = facts.python.include_directory
        digits = "{}{}".format(*facts.python.version)
        no_headers = NO_HEADERS.found(f"{folder} does not contain Python.h", {"folder": folder, "digits": digits})
        yield run_time_builds.wanted_by(user or run_time_builds.of_extensions(facts), no_headers)
    for found in libcuda(facts, version):
        yield run_time_builds.wanted_by(user, found) if user else found.as_note
    yield from assembler(facts, str(version))


def has_compiler(facts: Facts) -> bool:
    return bool(facts.environment.get("CC") or {"gcc", "clang"} & set(facts.toolchain.programs))


def libcuda(facts: Facts, version: Version) -> Iterator[Finding]:
    driver = driver_folder(facts)
    named = facts.environment.get("TRITON_LIBCUDA_PATH") if version >= READS_VARIABLES else None
    if driver is None or (named and not is_known(facts, named)):
        return
    wanted = "libcuda.so.1" if version >= LOOKS_FOR_SONAME else "libcuda.so"
    folders = (named,) if named else searched(facts, version, wanted)
    evidence = {"folder": driver, "searched": list(folders), "triton": str(version)}
    if not named and not any(has(facts, folder, wanted) for folder in folders):
        places = ", ".join(folders) or "no folder (neither the loader's cache nor LD_LIBRARY_PATH has one)"
        words = f"Triton {version} looks for {wanted} in {places}; libcuda.so.1 is in {driver}"
        yield NO_LIBCUDA.found(words, evidence, packages=("triton",))
    elif not links(facts, version, folders):
        name = "libcuda.so.1" if version >= LINKS_BY_SONAME else "libcuda.so"
        message = f"Triton {version} links with {name}, which is not in {', '.join(folders)}"
        is_sure = facts.environment.get("LIBRARY_PATH") is None  # its folders may not have been examined
        problem = replace(NO_LIBCUDA, fixes=(OWN_LINKS,) if named else (LINK, OWN_LINKS))
        sure = Confidence.CONFIRMED if is_sure else Confidence.LIKELY
        yield problem.found(message, evidence, confidence=sure, packages=("triton",))


def links(facts: Facts, version: Version, folders: tuple[str, ...]) -> bool:
    """Whether the linker finds libcuda: in Triton's folders, in LIBRARY_PATH, or in its own folders."""
    name = "libcuda.so.1" if version >= LINKS_BY_SONAME else "libcuda.so"
    more = (facts.environment.get("LIBRARY_PATH") or "").split(":")
    return any(has(facts, folder, name) for folder in (*folders, *filter(None, more), *LINKER_FOLDERS))


def searched(facts: Facts, version: Version, wanted: str) -> tuple[str, ...]:
    """The folders that Triton passes to the linker."""
    cached = dict.fromkeys(path.rsplit("/", 1)[0] for name, path in facts.libraries.cache if wanted in name)
    if cached or version < READS_VARIABLES:
        return tuple(cached)
    return tuple(folder for folder in facts.environment.library_path if has(facts, folder, wanted))


def has(facts: Facts, folder: str, name: str) -> bool:
    place = _place(facts, folder)
    found = (item for item in facts.libraries.all if item.soname == name and item.size is not None)
    return any(_place(facts, item.directory) == place for item in found)


def is_known(facts: Facts, folder: str) -> bool:
    """Whether the folder is one whose libraries were listed."""
    return any(_place(facts, item.directory) == _place(facts, folder) for item in facts.libraries.all)


def driver_folder(facts: Facts) -> str | None:
    """The folder of the driver's libcuda.so.1; None if it is missing, which other checks report."""
    libraries = (item for item in facts.libraries.all if item.soname == "libcuda.so.1" and item.size is not None)
    return next((item.directory for item in libraries if not (item.is_stub or item.is_compat)), None)


def _place(facts: Facts, folder: str) -> str:
    """One name for a folder with several names: /lib is a link to /usr/lib, /usr/local/cuda to the default toolkit."""
    toolkit = facts.toolchain.default_toolkit or "/usr/local/cuda"
    folder = re.sub(r"^/usr/local/cuda(?=/)", toolkit, folder.rstrip("/"))
    return re.sub(r"^/usr(?=/lib)", "", folder)


def summary(facts: Facts) -> str:
    missing = [name for name, there in (("a compiler", has_compiler(facts)), ("Python.h", facts.python.has_headers)) if not there]
    if missing:
        return f"Triton {installed(facts)} without {' and '.join(missing)}, but nothing here lets it compile"
    compilers = facts.toolchain.compilers
    compiler = facts.environment.get("CC") or next(name for name in ("gcc", "clang") if name in compilers)
    return f"Triton {installed(facts)} with {compiler}, Python.h and libcuda"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_COMPILER, NO_HEADERS, NO_LIBCUDA, TOO_OLD),
    tags=("pytorch",),
)
