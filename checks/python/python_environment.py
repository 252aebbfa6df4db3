"""The Python environment is one piece: no other installation reaches into it.

What it means
Python imports the first copy that it finds. PYTHONPATH and the user's site-packages (~/.local) come before the packages of a
virtual or conda environment, so an old copy there is imported, whatever you install in the environment. In a conda environment,
pip's PyTorch includes its own CUDA; the compiler that conda installed should have the same major release.

How it is judged
The packages for GPU work are imported from the environment if it contains them. In a conda environment, conda's CUDA toolkit and
the CUDA of pip's PyTorch have the same major release.

Known exceptions
Without an environment, packages of the user or from PYTHONPATH are intended. A copy outside the environment with the same
version does no harm. A conda CUDA toolkit of another release does not affect PyTorch itself, which has its own libraries, but
extensions compiled with it do not load.

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
    title="Packages outside the environment hide those installed in it",
    why="PYTHONPATH and the user's site-packages come first on Python's search path. Installing these packages into the "
    "environment with pip has no effect.",
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
    "If no other environment needs the copies: move them away",
    "mv <folder> <folder>.off",
    risk="disruptive",
    verify="<python> -m pip show -f <package>",
    undo="mv <folder>.off <folder>",
    kind="set",
)

CONDA_PIP = Problem(
    id="conda-pip-cuda-mix",
    title="conda's CUDA toolkit and pip's PyTorch have different CUDA releases",
    why="torch.utils.cpp_extension refuses to compile with an nvcc of another major release. Code that is compiled anyway "
    "looks for libraries that PyTorch does not load.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install the compiler of PyTorch's CUDA release in the environment",
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
        raise Skip("this Python is not in a virtual or conda environment")
    yield from shadows(facts)
    yield from conda_and_pip(facts)


def shadows(facts: Facts) -> Iterator[Finding]:
    """One finding for all, since they have one cause; PyTorch comes first because it is the best known."""
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
