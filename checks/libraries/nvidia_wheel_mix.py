"""NVIDIA's Python wheels match the CUDA release that PyTorch was built for.

What it means
CUDA libraries come as wheels: nvidia-cublas-cu12 for CUDA 12, nvidia-cublas (no suffix) since CUDA 13. The wheels of cuDNN, NCCL,
NVSHMEM and cuSPARSELt unpack into the same folder for every CUDA release, so a second one overwrites the first.

How it is judged
The wheels in PyTorch's metadata must be installed, not only those of another CUDA release. No wheel of another release may
share a folder with them. An installed package must require any other wheel of another release.

Known exceptions
JAX, CuPy, TensorFlow or ONNX Runtime may use another CUDA release than PyTorch. Wheels that one of them requires, even as an
optional extra, are reported only if they share a folder with PyTorch's.

References
https://github.com/pytorch/pytorch/blob/main/RELEASE.md
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.packages import Package
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

SAME_FOLDER = frozenset({"cudnn", "nccl", "nvshmem", "cusparselt"})
LIBRARIES = SAME_FOLDER | {
    *("cublas", "cuda-cupti", "cuda-nvcc", "cuda-nvrtc", "cuda-runtime", "cufft", "cufile", "curand", "cusolver", "cusparse"),
    *("nvjitlink", "nvtx"),
}
FIRST_WITHOUT_SUFFIX = 13
SHOW = "<python> -c 'import torch; print(torch.cuda.is_available())'"

OTHER_MAJOR = Problem(
    id="torch-cuda-wheels-of-another-major",
    title="PyTorch's CUDA wheels are missing; another release's are installed",
    why="PyTorch loads the libraries of the CUDA release that it was built for; their file names contain that release. Wheels of "
    "another release were installed instead.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Replace them with the wheels that PyTorch requires",
            command="<python> -m pip uninstall -y <others> && <python> -m pip install --force-reinstall --no-deps <wanted>",
            needs=("network",),
            verify=SHOW,
            kind="install",
        ),
    ),
)

OVERWRITTEN = Problem(
    id="cuda-wheels-overwrite-each-other",
    title="Wheels of two CUDA releases unpack into the same folder",
    why="Both contain files of the same name, so the wheel that was installed last has overwritten the other. Programs that "
    "need the other one load a library built for the wrong CUDA release.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Keep only the wheels of PyTorch's CUDA release",
            command="<python> -m pip uninstall -y <others> && <python> -m pip install --force-reinstall --no-deps <wanted>",
            needs=("network",),
            verify=SHOW,
            kind="install",
        ),
        Fix("If another framework needs the others: use a separate environment, or its build for PyTorch's CUDA release"),
    ),
    status=Status.WARN,
)

MIXED = Problem(
    id="cuda-wheel-majors-mixed",
    title="Wheels of another CUDA release than PyTorch's are left over",
    why="No installed package requires them. They come from an earlier PyTorch or from a command for another release. A "
    "program that loads the first library it finds may load the wrong one.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Remove these wheels",
            command="<python> -m pip uninstall -y <others>",
            verify="<python> -m pip check",
            kind="install",
        ),
    ),
    status=Status.WARN,
)


class Wheel(NamedTuple):
    """A wheel with a CUDA library, and the CUDA release that it is for."""

    name: str
    library: str
    cuda_major: int


def judge(facts: Facts) -> Iterator[Finding]:
    torch = facts.python.package("torch")
    if torch is None:
        raise Skip("PyTorch is not installed in this Python")
    if facts.python.torch_cuda is None:
        raise Skip("this PyTorch was built without CUDA")
    major = int(facts.python.torch_cuda.split(".")[0])
    installed = [wheel for name in facts.python.packages if (wheel := wheel_of(facts, name))]
    others = [wheel for wheel in installed if wheel.cuda_major != major]
    named = [line for line in facts.python.requirements(torch) if line.name.startswith("nvidia-")]
    yield from _judge(facts, named, others) if others else ()


def _judge(facts: Facts, named: list[Requirement], others: list[Wheel]) -> Iterator[Finding]:
    libraries = {wheel.library for wheel in others}
    missing = [line for line in named if facts.python.package(line.name) is None and _library(line.name) in libraries]
    if missing:
        yield _found(OTHER_MAJOR, missing, others, "PyTorch requires {wanted}; installed instead: {others}")
        return
    twice = [wheel for wheel in others if wheel.library in SAME_FOLDER and wheel.library in map(_library, _present(facts, named))]
    if twice:
        wanted = [line for line in named if _library(line.name) in {wheel.library for wheel in twice}]
        yield _found(OVERWRITTEN, wanted, twice, "{others} share a folder with PyTorch's {wanted}")
        return
    explained = wanted_by_frameworks(facts)
    unexplained = [wheel for wheel in others if wheel.name not in explained and not _has_user(facts, wheel.cuda_major)]
    if unexplained:
        words = f"PyTorch uses CUDA {facts.python.torch_cuda}; no installed package requires {{others}}"
        yield _found(MIXED, [], unexplained, words, Confidence.LIKELY)


def _found(
    problem: Problem,
    wanted: list[Requirement],
    others: list[Wheel],
    words: str,
    confidence: Confidence = Confidence.CONFIRMED,
) -> Finding:
    names = {"wanted": ", ".join(line.name for line in wanted), "others": ", ".join(wheel.name for wheel in others)}
    evidence = {"others": [wheel.name for wheel in others], "wanted": [f"{line.name}{line.specifier}" for line in wanted]}
    return problem.found(words.format(**names), evidence, confidence=confidence)


def wheel_of(facts: Facts, name: str) -> Wheel | None:
    """nvidia-cublas-cu12 is for CUDA 12; nvidia-cublas is for the release of nvidia-cuda-runtime (13 or later)."""
    library = _library(name)
    if library not in LIBRARIES:
        return None
    suffix = re.search(r"-cu(\d{2})\d*$", name)
    return Wheel(name, library, int(suffix[1]) if suffix else _major_without_suffix(facts))


@functools.lru_cache(1024)
def _library(name: str) -> str:
    """cublas for nvidia-cublas-cu12 and for nvidia-cublas."""
    return re.sub(r"-cu\d+$", "", canonicalize_name(name).removeprefix("nvidia-"))


def _major_without_suffix(facts: Facts) -> int:
    runtime = facts.python.package("nvidia-cuda-runtime")
    return Version(runtime.version).major if runtime else FIRST_WITHOUT_SUFFIX


def _present(facts: Facts, named: list[Requirement]) -> list[str]:
    return [line.name for line in named if facts.python.package(line.name)]


def wanted_by_frameworks(facts: Facts) -> set[str]:
    """All requirements, direct and indirect, of packages that are not CUDA libraries; optional extras included."""
    packages = {name: copies[0] for name, copies in facts.python.packages.items()}
    queue = [name for name in packages if wheel_of(facts, name) is None and name != "cuda-toolkit"]
    seen: set[str] = set()
    while queue:
        name = queue.pop()
        if name not in seen:
            seen.add(name)
            queue += _names(packages[name]) if name in packages else []
    return seen


def _names(package: Package) -> Iterator[str]:
    for line in package.stated_requires or ():
        try:
            yield canonicalize_name(Requirement(line).name)
        except InvalidRequirement:
            continue


def _has_user(facts: Facts, cuda_major: int) -> bool:
    """Whether a package is for this CUDA release by its name, and its requirements were not read."""
    for_release = re.compile(rf"-(cu|cuda){cuda_major}\d?x?$")
    names = [name for name, copies in facts.python.packages.items() if for_release.search(name) and not wheel_of(facts, name)]
    return any(facts.python.packages[name][0].stated_requires is None for name in names)


def summary(facts: Facts) -> str:
    return f"all NVIDIA packages are for CUDA {facts.python.torch_cuda} or required by another package"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(OTHER_MAJOR, OVERWRITTEN, MIXED),
    needs=("torch",),
    tags=("pytorch",),
)
