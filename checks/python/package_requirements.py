"""The packages for GPU work have the other packages that they require, in supported versions.

What it means
The metadata of a package lists the packages that it requires and their versions. pip respects this within one installation, but
a later installation can break it: NumPy is upgraded, and Numba can no longer be imported.

How it is judged
The requirements of the packages for GPU work (Numba, CuPy, JAX, PyTorch, Triton, TensorFlow, ONNX Runtime, vLLM and so on) are
compared with the installed versions. All requirements that apply to this Python count, except optional extras.

Known exceptions
Extras are ignored. setuptools and wheel are ignored where NVIDIA's wheels require them: only their build needs them. A
development build counts as its release. A package with another name but the same content counts (onnxruntime-gpu for
onnxruntime). conda is responsible for the requirements of packages that it installed. What PyTorch and its companions, or the
parts of JAX, require of each other is judged by separate checks. If a companion is built for another PyTorch, its unmet
requirements for other companions are attributed to that.

References
https://packaging.python.org/en/latest/specifications/dependency-specifiers/
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from gpudoctor.facts import Facts
from gpudoctor.facts.packages import Package, canonicalize_name
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, Unavailable

# Packages that fail at import if one of these is missing or outside the version range.
CHECKED_AT_IMPORT = {"numba": ("numpy", "llvmlite"), "torch": ("nvidia-",)}
# Compiled against NumPy: a build for NumPy 1 fails at import with NumPy 2.
COMPILED_FOR_NUMPY = ("cupy", "jaxlib", "tensorflow", "onnxruntime", "pycuda")
# Not in the metadata. Before 2.3 torch was compiled for NumPy 1, and works without NumPy: https://github.com/pytorch/pytorch/issues/107302
UNWRITTEN = {"torch": ((SpecifierSet("<2.3"), Requirement("numpy<2")),)}
COMPANIONS = {"torchvision", "torchaudio", "torchtext", "xformers", "vllm", "torch-tensorrt"}
SAME_CONTENT = {
    "onnxruntime": ("onnxruntime-gpu",),
    "tensorflow": ("tensorflow-cpu", "tf-nightly"),
    "triton": ("pytorch-triton",),
    "opencv-python": ("opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless"),
    "opencv-python-headless": ("opencv-python", "opencv-contrib-python", "opencv-contrib-python-headless"),
}
BUILD_TOOLS = ("setuptools", "wheel")
TORCH_CHECKS = ("triton", "pytorch-triton", "nvidia-cudnn", "nvidia-nccl")

COMPLETE = Fix(
    "Let pip find versions that all of them support",
    command="<python> -m pip install <requirements>",
    needs=("network",),
    verify="<python> -m pip check",
    kind="install",
)

UNMET = Problem(
    id="package-requirements-unmet",
    title="A GPU package cannot be imported with the installed versions",
    why="The package checks the version at import, or is compiled against it, and fails to import.",
    action=Action.INSTALL,
    fixes=(COMPLETE,),
)

UNSUPPORTED = Problem(
    id="package-versions-not-supported",
    title="A package that a GPU package requires is missing or unsupported",
    why="A later installation removed the package or changed its version. Some features may fail, perhaps only when they are "
    "used.",
    action=Action.INSTALL,
    fixes=(COMPLETE,),
    status=Status.WARN,
    latent=True,
)


class Unmet(NamedTuple):
    """An unmet requirement, and the package that has it."""

    by: Package
    line: Requirement


def judge(facts: Facts) -> Iterator[Finding]:
    judged = [copies[0] for copies in facts.python.packages.values() if copies[0].stated_requires is not None]
    if not judged:
        raise Skip("no package for GPU work is installed in this Python")
    unmet: dict[str, list[Unmet]] = defaultdict(list)
    unread: list[str] = []
    for package in judged:
        for line in (*facts.python.requirements(package), *unwritten(facts, package)):
            try:
                if not _is_other_checks(package, line, facts) and not _met(facts, package, line):
                    unmet[canonicalize_name(line.name)].append(Unmet(package, line))
            except InvalidVersion as error:
                unread.append(str(error))
    for problem in (UNMET, UNSUPPORTED):
        of_kind = {name: lines for name, lines in unmet.items() if _problem(facts, name, lines) is problem}
        if of_kind:
            yield _found(facts, problem, of_kind)
    if unread:
        raise Unavailable(unread[0])


def unwritten(facts: Facts, package: Package) -> list[Requirement]:
    """Requirements that hold if the other package is installed."""
    known = UNWRITTEN.get(canonicalize_name(package.name), ())
    return [line for versions, line in known if package.version in versions and facts.python.package(line.name)]


def _is_other_checks(package: Package, line: Requirement, facts: Facts) -> bool:
    name, wanted = canonicalize_name(package.name), canonicalize_name(line.name)
    if name.startswith("nvidia-") and wanted in BUILD_TOOLS:
        return True
    if name == "torch":
        return wanted.startswith(TORCH_CHECKS) or _is_of_another_cuda(facts, wanted)
    if name == "jax" or name.startswith(("jax-", "jaxlib")):
        return wanted.startswith("jax")
    return name in COMPANIONS and wanted == "torch"


def _is_of_another_cuda(facts: Facts, wanted: str) -> bool:
    """nvidia-wheel-mix reports CUDA libraries of PyTorch that are missing because those of another release are installed."""
    stem = wanted.rpartition("-cu")[0]
    return (
        wanted.startswith("nvidia-")
        and facts.python.package(wanted) is None
        and any(name == stem or name.startswith(stem + "-cu") for name in facts.python.packages)
    )


def _met(facts: Facts, package: Package, line: Requirement) -> bool:
    wanted = canonicalize_name(line.name)
    names = (wanted, *SAME_CONTENT.get(wanted, ()))
    installed = next((found for name in names if (found := facts.python.package(name))), None)
    if installed is None:
        return package.installer == "conda" or (facts.python.is_conda and wanted in facts.python.conda_packages)
    return _satisfies(installed.version, line.specifier)


def _satisfies(stated: str, wanted: SpecifierSet) -> bool:
    version = Version(stated)
    return not wanted or any(
        wanted.contains(text, prereleases=True) for text in dict.fromkeys((str(version), version.base_version))
    )


def _problem(facts: Facts, name: str, lines: list[Unmet]) -> Problem:
    installed = facts.python.package(name)
    return UNMET if any(_is_fatal(one, installed) for one in lines) else UNSUPPORTED


def _found(facts: Facts, problem: Problem, unmet: dict[str, list[Unmet]]) -> Finding:
    """One finding for all, since one command fixes them."""
    installed = {name: facts.python.package(name) for name in unmet}
    told = sorted(unmet, key=lambda name: installed[name] is None)  # wrong versions before missing packages
    needed_by = list(dict.fromkeys(one.by.name for name in told for one in unmet[name]))
    finding = problem.found(
        "; ".join(_told(unmet[name], installed[name]) for name in told),
        {
            "requirements": [name + _specifiers(unmet[name]) for name in told],
            "installed": {name: package.version if package else None for name, package in installed.items()},
            "needed_by": needed_by,
        },
        packages=(*told, *needed_by),
    )
    of_torch = all(name in COMPANIONS and canonicalize_name(one.by.name) in COMPANIONS for name in unmet for one in unmet[name])
    return replace(finding, causes=("torch-companion-mismatch",)) if of_torch else finding


def _specifiers(lines: list[Unmet]) -> str:
    return ",".join(dict.fromkeys(str(one.line.specifier) for one in lines if str(one.line.specifier)))


def _told(lines: list[Unmet], installed: Package | None) -> str:
    needs = ", ".join(f"{one.by.name} {one.by.version} needs {one.line.name}{one.line.specifier}" for one in lines)
    return f"{needs}; {f'{installed.version} is' if installed else 'it is not'} installed"


def _is_fatal(unmet: Unmet, installed: Package | None) -> bool:
    name, wanted = canonicalize_name(unmet.by.name), canonicalize_name(unmet.line.name)
    if wanted == "numpy" and name.startswith(COMPILED_FOR_NUMPY):
        return installed is None or (Version(installed.version).major > 1 and not unmet.line.specifier.contains("2.0"))
    checked = wanted.startswith(CHECKED_AT_IMPORT.get(name, ("-",)))
    return checked and (name != "torch" or installed is None)


def summary(facts: Facts) -> str:
    judged = sum(copies[0].stated_requires is not None for copies in facts.python.packages.values())
    return "1 GPU package has all its requirements" if judged == 1 else f"{judged} GPU packages have all their requirements"


CHECK = Check(judge=judge, summary=summary, problems=(UNMET, UNSUPPORTED))
