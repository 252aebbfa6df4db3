"""A framework that conda and pip have both installed into one environment, in different releases. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.model import Action, Fix, Problem, Status

NAMES = {"pytorch": "torch", "tensorflow": "tensorflow", "jaxlib": "jaxlib", "torchvision": "torchvision"}
PROBLEM = Problem(
    id="framework-from-conda-and-pip",
    title="conda and pip both installed a framework, in different releases",
    why="Both write into the same folder, and neither knows of the other. Python may import either release or a mix of both, and "
    "an update by one of them overwrites files of the other.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Show which release Python imports",
            "<python> -c 'import <module>; print(<module>.__version__, <module>.__file__)'",
            kind="read",
        ),
        Fix(
            "Keep conda's: remove pip's, then let conda write its files again",
            "<python> -m pip uninstall -y <module> && conda install --force-reinstall <package>",
            needs=("network",),
            verify="conda list <package>",
            kind="install",
        ),
        Fix("Create a new environment and install the framework with only one of them"),
    ),
    references=("https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html",),
    status=Status.WARN,
)


class Twice(NamedTuple):
    """One framework: the package of conda and its version, the module, and pip's version."""

    package: str
    of_conda: str
    module: str
    of_pip: str


def twice(facts: Facts) -> Iterator[Twice]:
    conda = known(lambda: facts.python.conda_packages, {})
    for package, module in NAMES.items():
        if package in conda and (of_pip := _of_pip(facts, module)) and _differ(conda[package].version, of_pip):
            yield Twice(package, conda[package].version, module, of_pip)


def _of_pip(facts: Facts, name: str) -> str:
    """A text's list shows it, even where the text also shows what Python imports."""
    installed = known(lambda: facts.python.package(name))
    return facts.shown.listed.get(name) or (installed.version if installed else "")


def _differ(one: str, other: str) -> bool:
    """conda-forge adds .post300 to a release, and wheels a local version."""
    try:
        return Version(one).release != Version(other).release
    except InvalidVersion:
        return False
