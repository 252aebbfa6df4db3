"""The Python environment is one piece: no other installation reaches into it.

What it means
Python imports the first copy that it finds. PYTHONPATH and the user's own site-packages (~/.local) come before a virtual or
conda environment's packages, so an old copy there is imported whatever was installed. In a conda environment pip's PyTorch
brings its own CUDA, and the compiler that conda installed should be of the same major release.

How it is judged
For the packages for GPU work: the copy that is imported lies in the environment, where the environment has one. In a conda
environment: the CUDA toolkit of conda and the one that pip's PyTorch was built with are of one major release.

Known exceptions
Without an environment there is nothing to reach into: packages of the user or of PYTHONPATH are meant there. A copy outside
that has the same version does no harm. A CUDA toolkit from conda of another release is harmless for PyTorch itself, which has
its own libraries; extensions compiled with it do not load.

References
https://docs.python.org/3/library/site.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.packages import CondaPackage
from gpudoctor.judging.python.shadowing import PROBLEM, shadowed
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

CONDA_TOOLKITS = ("cuda-nvcc", "cudatoolkit", "cudatoolkit-dev", "cuda-toolkit", "cuda")

SHADOWED = Problem(
    id=PROBLEM,
    title="Packages from outside the environment are imported instead of its own",
    why="PYTHONPATH and the user's site-packages come first on Python's search path. What pip installs into this environment "
    "has no effect on these packages.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Start Python without them, and unset PYTHONPATH where it is set (~/.bashrc, a module file)",
            command="unset PYTHONPATH; export PYTHONNOUSERSITE=1",
            verify="<python> -m pip show -f <package>",
            where="shell",
        ),
    ),
    status=Status.WARN,
)

REMOVE = Fix(
    "Or remove the copies there, if no other environment needs them",
    "mv <folder> <folder>.off",
    risk="disruptive",
    verify="<python> -m pip show -f <package>",
    undo="mv <folder>.off <folder>",
    kind="set",
)

CONDA_PIP = Problem(
    id="conda-pip-cuda-mix",
    title="conda's CUDA toolkit and pip's PyTorch are of different CUDA releases",
    why="torch.utils.cpp_extension refuses to compile with an nvcc of another major release, and what is compiled anyway looks "
    "for libraries that PyTorch does not load.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Give the environment the compiler of PyTorch's release",
            command="conda install -c nvidia cuda-nvcc=<wanted>",
            needs=("network",),
            verify="nvcc --version",
            kind="install",
        ),
    ),
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    if not (facts.python.is_virtual or facts.python.is_conda):
        raise Skip("this Python is no virtual or conda environment")
    yield from shadows(facts)
    yield from conda_and_pip(facts)


def shadows(facts: Facts) -> Iterator[Finding]:
    """One finding for all: they have one cause. PyTorch is the one that people know."""
    found = sorted(shadowed(facts), key=lambda pair: pair.imported.name != "torch")
    if found:
        first = found[0].imported
        evidence = {
            "package": first.name,
            "packages": [pair.imported.name for pair in found],
            "folder": first.location,
            "imported": {pair.imported.name: f"{pair.imported.version} in {pair.imported.location}" for pair in found},
            "hidden": {pair.imported.name: pair.own.version for pair in found},
        }
        others = f" and {len(found) - 1} more" if len(found) > 1 else ""
        is_users = first.location == facts.python.user_site
        problem = replace(SHADOWED, fixes=(*SHADOWED.fixes, REMOVE)) if is_users else SHADOWED
        yield problem.found(f"{first.name} {first.version} in {first.location} hides {found[0].own.version}{others}", evidence)


def conda_and_pip(facts: Facts) -> Iterator[Finding]:
    torch = facts.python.package("torch")
    if torch is None or torch.installer in (None, "conda") or not facts.python.conda_packages:
        return
    toolkit = next((found for name in CONDA_TOOLKITS if (found := facts.python.conda_packages.get(name))), None)
    cuda = facts.python.torch_cuda
    if toolkit and cuda and _major(toolkit) != int(cuda.split(".")[0]):
        yield CONDA_PIP.found(
            f"conda's {toolkit.name} is {toolkit.version}; pip's torch {facts.python.torch_version} has CUDA {cuda}",
            {"conda": f"{toolkit.name} {toolkit.version}", "torch_cuda": cuda, "wanted": cuda},
            packages=("torch",),
        )


def _major(package: CondaPackage) -> int:
    return Version(package.version).major


def summary(facts: Facts) -> str:
    return f"{'conda' if facts.python.is_conda else 'virtual'} environment {facts.python.prefix}"


CHECK = Check(judge=judge, summary=summary, problems=(SHADOWED, CONDA_PIP))
