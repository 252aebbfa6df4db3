"""LD_LIBRARY_PATH does not put an older CUDA toolkit before the libraries that programs were built for.

What it means
The loader searches LD_LIBRARY_PATH before most other places. A folder of an older CUDA toolkit there (/usr/local/cuda-12.1/lib64
in an old ~/.bashrc) replaces newer libraries of the same name: "undefined symbol: __nvJitLinkComplete_12_4".

How it is judged
For PyTorch before 2.6 the check compares the libraries in LD_LIBRARY_PATH with the wheels that PyTorch came with: libnvJitLink,
and before 2.1 libcublas, libcusparse and libcudart too. For any program, no toolkit library in LD_LIBRARY_PATH may be older
than one of the same name that comes later in it, or in the wheels of the Python environment.

Known exceptions
PyTorch 2.6 and later loads its own libraries by their full path, whatever LD_LIBRARY_PATH contains; extensions and other
packages may not. A library newer than the wheel's keeps all its functions. Libraries of different major versions
(libcublas.so.11 and .12) do not replace each other. cuDNN and NCCL have separate checks.

References
https://github.com/pytorch/pytorch/issues/111469
https://github.com/pytorch/pytorch/issues/134929
https://github.com/pytorch/pytorch/pull/141063
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.libraries import Library
from gpudoctor.facts.packages import Package
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Status

OWN_PATHS = Version("2.1")  # since this release the wheels have an RPATH, which is searched before LD_LIBRARY_PATH
PRELOADS = Version("2.6")  # https://github.com/pytorch/pytorch/pull/141063
# Library -> its wheel without "nvidia-" and "-cu12"; both use the same version numbers
WHEELS = {"libnvJitLink": "nvjitlink"}
OLD_WHEELS = {
    **WHEELS,
    "libcublas": "cublas",
    "libcublasLt": "cublas",
    "libcusparse": "cusparse",
    "libcudart": "cuda-runtime",
}
ALL_WHEELS = {**OLD_WHEELS, "libnvrtc": "cuda-nvrtc"}
TOOLKIT = re.compile(r"lib(cublas|cublasLt|cudart|cufft|curand|cusolver|cusparse|nvJitLink|nvrtc)")

CLEAN = Fix(
    "Remove the folder from LD_LIBRARY_PATH, here and where it is set (~/.bashrc, /etc/environment, ENV of an image)",
    command="export LD_LIBRARY_PATH=<without_it>",
    verify="echo $LD_LIBRARY_PATH",
    where="shell",
)

STALE = Problem(
    id="stale-ld-library-path-cuda",
    title="LD_LIBRARY_PATH gives PyTorch libraries of an older CUDA toolkit",
    why="PyTorch's libraries are built to work together, and LD_LIBRARY_PATH replaces one of them with an older toolkit's "
    "library. 'import torch' fails with 'undefined symbol: __nvJitLink...' or a similar error.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(CLEAN.title, CLEAN.command, verify="<python> -c 'import torch; print(torch.cuda.is_available())'", where="shell"),
        Fix(
            "If other programs need it: put the wheel's folder first",
            command="export LD_LIBRARY_PATH=<wheel>:$LD_LIBRARY_PATH",
            verify="<python> -c 'import torch; print(torch.cuda.is_available())'",
            where="shell",
        ),
    ),
    references=("https://github.com/pytorch/pytorch/issues/111469", "https://github.com/pytorch/pytorch/issues/134929"),
)

HIDDEN = Problem(
    id="newer-cuda-toolkit-hidden-in-library-path",
    title="LD_LIBRARY_PATH has two CUDA toolkits, the older one first",
    why="A program that was built with the newer toolkit loads the older toolkit's libraries, which may lack functions that it "
    "needs.",
    action=Action.FIX_CONFIG,
    fixes=(CLEAN,),
    status=Status.WARN,
)


BEFORE_WHEELS = Problem(
    id="older-cuda-toolkit-before-wheels",
    title="LD_LIBRARY_PATH puts an older CUDA toolkit before Python's wheels",
    why="This PyTorch loads its own libraries whatever the variable contains. Extensions and packages that rely on the loader "
    "get the older libraries, which may lack functions that they need.",
    action=Action.FIX_CONFIG,
    fixes=(CLEAN,),
    references=STALE.references,
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    found = [library for library in facts.libraries.all if library.via == "LD_LIBRARY_PATH" and library.size is not None]
    first: dict[str, Library] = {}
    for library in found:
        first.setdefault(library.soname, library)
    stale = [finding for library in first.values() if (finding := _stale(facts, library))]
    hidden = [finding for library in found if (finding := _hides(facts, first[library.soname], library))]
    before = [finding for library in first.values() if (finding := _before_wheel(facts, library))]
    yield from stale[:1] or hidden[:1] or before[:1]  # the others come from the same folder


def _stale(facts: Facts, library: Library) -> Finding | None:
    package = _wheel(facts, library)
    version = library.release if package else None
    if package is None or version is None or version >= Version(package.version):
        return None
    return STALE.found(
        f"{library.path} is {version}; torch {facts.python.torch_version} came with {package.name} {package.version}",
        {
            "library": library.path,
            "without_it": facts.environment.library_path_without(library.index),
            "wheel": next((one.directory for one in facts.libraries.named(library.name) if one.via == "wheel"), package.location),
        },
        confidence=Confidence.LIKELY,
    )


def _wheel(facts: Facts, library: Library) -> Package | None:
    """The wheel with the library that PyTorch would load instead of this one."""
    if library.name not in OLD_WHEELS or facts.python.package("torch") is None or not facts.python.torch_cuda:
        return None
    torch = Version(facts.python.torch_version or "0")
    wheels = {} if torch >= PRELOADS else WHEELS if torch >= OWN_PATHS else OLD_WHEELS
    major = library.soname.rpartition(".so.")[2]
    if library.name not in wheels or facts.python.torch_cuda.split(".")[0] != major:
        return None
    return facts.python.package(f"nvidia-{wheels[library.name]}-cu{major}")


def _before_wheel(facts: Facts, library: Library) -> Finding | None:
    """A toolkit's library that is older than the same library in a wheel of this environment."""
    name = ALL_WHEELS.get(library.name)
    if name is None:
        return None
    version = library.release
    of_cuda_12 = facts.python.package(f"nvidia-{name}-cu{library.soname.rpartition('.so.')[2]}")
    package = of_cuda_12 or facts.python.package(f"nvidia-{name}")  # the wheels of CUDA 13 have no number in their names
    if package is None or version is None or version >= Version(package.version):
        return None
    return BEFORE_WHEELS.found(
        f"{library.path} is {version} and is found before {package.name} {package.version}",
        {"library": library.path, "without_it": facts.environment.library_path_without(library.index)},
    )


def _hides(facts: Facts, first: Library, later: Library) -> Finding | None:
    if first is later or not TOOLKIT.fullmatch(first.name):
        return None
    ours, theirs = first.release, later.release
    if ours is None or theirs is None or ours >= theirs:
        return None
    return HIDDEN.found(
        f"{first.path} is {ours} and is found before {later.path}, which is {theirs}",
        {"library": first.path, "hidden": later.path, "without_it": facts.environment.library_path_without(first.index)},
    )


def summary(facts: Facts) -> str:
    folders = dict.fromkeys(
        library.directory
        for library in facts.libraries.all
        if library.via == "LD_LIBRARY_PATH" and TOOLKIT.fullmatch(library.name)
    )
    if not folders:
        return "no CUDA library comes from LD_LIBRARY_PATH"
    return "LD_LIBRARY_PATH has CUDA libraries in " + ", ".join(folders)


CHECK = Check(judge=judge, summary=summary, problems=(STALE, HIDDEN, BEFORE_WHEELS))
