"""NVIDIA's Python wheels are those of the CUDA release that PyTorch was built for.

What it means
CUDA libraries come as wheels: nvidia-cublas-cu12 for CUDA 12, nvidia-cublas (no suffix) from CUDA 13 on. Those of cuDNN, NCCL,
NVSHMEM and cuSPARSELt unpack into the same folder for every CUDA release, so a second one overwrites the first.

How it is judged
The wheels that PyTorch names in its metadata are there, and not only those of another CUDA release. No wheel of another
release shares a folder with them. Any other wheel of another release is wanted by a package that is installed.

Known exceptions
JAX, CuPy, TensorFlow or ONNX Runtime may use another CUDA release beside PyTorch's: what one of them names, even as an
optional extra, is explained. Only what shares a folder is reported then.

References
https://github.com/pytorch/pytorch/blob/main/RELEASE.md
"""

from __future__ import annotations

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
    title="PyTorch's CUDA libraries are missing; those of another CUDA release are there",
    why="PyTorch loads the libraries of the CUDA release that it was built for, by names with that release in them. Wheels of "
    "another release were installed in their place.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Replace them by the ones that PyTorch names",
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
    why="Both have files of the same name, so the one that was installed last has overwritten the other. Whoever needs the other "
    "one loads a library built for the wrong CUDA release.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Keep those of PyTorch's release",
            command="<python> -m pip uninstall -y <others> && <python> -m pip install --force-reinstall --no-deps <wanted>",
            needs=("network",),
            verify=SHOW,
            kind="install",
        ),
        Fix("Where another framework needs the others: give it an environment of its own, or its build for PyTorch's release"),
    ),
    status=Status.WARN,
)

MIXED = Problem(
    id="cuda-wheel-majors-mixed",
    title="Wheels of another CUDA release than PyTorch's are left over",
    why="Nothing that is installed asks for them. They come from an earlier PyTorch or from a command for another release, and a "
    "program that takes the first library it finds takes the wrong one.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Remove them",
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
        yield _found(OTHER_MAJOR, missing, others, "PyTorch needs {wanted}; installed instead: {others}")
        return
    twice = [wheel for wheel in others if wheel.library in SAME_FOLDER and wheel.library in map(_library, _present(facts, named))]
    if twice:
        wanted = [line for line in named if _library(line.name) in {wheel.library for wheel in twice}]
        yield _found(OVERWRITTEN, wanted, twice, "{others} share a folder with PyTorch's {wanted}")
        return
    explained = wanted_by_frameworks(facts)
    unexplained = [wheel for wheel in others if wheel.name not in explained and not _has_user(facts, wheel.cuda_major)]
    if unexplained:
        words = f"PyTorch has CUDA {facts.python.torch_cuda}; nothing that is installed asks for {{others}}"
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
    """nvidia-cublas-cu12 is for CUDA 12; nvidia-cublas for the release of nvidia-cuda-runtime, from 13 on."""
    library = _library(name)
    if library not in LIBRARIES:
        return None
    suffix = re.search(r"-cu(\d{2})\d*$", name)
    return Wheel(name, library, int(suffix[1]) if suffix else _major_without_suffix(facts))


def _library(name: str) -> str:
    """cublas of nvidia-cublas-cu12 and nvidia-cublas."""
    return re.sub(r"-cu\d+$", "", canonicalize_name(name).removeprefix("nvidia-"))


def _major_without_suffix(facts: Facts) -> int:
    runtime = facts.python.package("nvidia-cuda-runtime")
    return Version(runtime.version).major if runtime else FIRST_WITHOUT_SUFFIX


def _present(facts: Facts, named: list[Requirement]) -> list[str]:
    return [line.name for line in named if facts.python.package(line.name)]


def wanted_by_frameworks(facts: Facts) -> set[str]:
    """All that is reached from the packages that are no CUDA library by what they name, optional extras included."""
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
    """A package whose name says that it is for this CUDA release, and of which the requirements were not read."""
    for_release = re.compile(rf"-(cu|cuda){cuda_major}\d?x?$")
    names = [name for name, copies in facts.python.packages.items() if for_release.search(name) and not wheel_of(facts, name)]
    return any(facts.python.packages[name][0].stated_requires is None for name in names)


def summary(facts: Facts) -> str:
    return f"NVIDIA's packages are all for CUDA {facts.python.torch_cuda} or wanted by another package"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(OTHER_MAJOR, OVERWRITTEN, MIXED),
    needs=("torch",),
)
