"""Installs packages with the tools that keep a project file and a lock file: uv, Poetry and Pipenv.

https://docs.astral.sh/uv/concepts/indexes/
https://python-poetry.org/docs/repositories/
"""

from __future__ import annotations

import re

from gpudoctor.fixes.environment import Environment
from gpudoctor.fixes.pip import Call, joined

PYTORCH_INDEX = "https://download.pytorch.org/whl/"
BEFORE = ".before"  # the suffix of the saved project file
UV_FLAGS = {"--force-reinstall": "--reinstall", "-U": "--upgrade", "--upgrade": "--upgrade"}


def index_name(call: Call) -> str:
    return "pytorch-" + call.index.rstrip("/").rsplit("/", 1)[-1] if call.index.startswith(PYTORCH_INDEX) else "wheels"


def uv(call: Call, here: Environment) -> str:
    """uv has no option for an explicit index; without `explicit = true`, all packages would come from it."""
    flags = [UV_FLAGS[flag] for flag in call.flags if flag in UV_FLAGS]
    add = ["uv", "add", "--project", here.folder]
    if not call.index:
        return joined(add, flags, call.packages)
    name, file = index_name(call), f"{here.folder}/pyproject.toml"
    return " && ".join(
        (
            joined("cp", file, file + BEFORE),
            joined(add, "--frozen", "--index", f"{name}={call.index}", call.packages),
            joined("sed", "-i", f'/^name = "{name}"/a explicit = true', file),
            joined("uv", "sync", "--project", here.folder),
        )
    )


def poetry(call: Call, here: Environment) -> str:
    """A package that the project already has is changed only if its version is named."""
    inside = joined(in_poetry(here))
    if not call.index:
        return f"{inside} add {joined(call.packages)}"
    name = index_name(call)
    packages = joined(package if re.search(r"[=<>~@]", package) else f"{package}>=0" for package in call.packages)
    added = f"{inside} source add --priority=explicit {name} {call.index} && {inside} add --source {name} {packages}"
    return " && ".join([*(joined("cp", file, file + BEFORE) for file in _files_of_poetry(here)), added])


def _files_of_poetry(here: Environment) -> list[str]:
    folder = "" if "/virtualenvs/" in here.prefix else f"{here.folder}/"
    return [f"{folder}pyproject.toml", f"{folder}poetry.lock"]


def as_before(here: Environment) -> str:
    """Restores a project's saved files."""
    if here.kind == "uv-project":
        file = f"{here.folder}/pyproject.toml"
        return f"{joined('mv', file + BEFORE, file)} && {joined('uv', 'sync', '--project', here.folder)}"
    back = [joined("mv", file + BEFORE, file) for file in _files_of_poetry(here)]
    return " && ".join([*back, joined(in_poetry(here), "install")])


def in_poetry(here: Environment) -> list[str]:
    return ["poetry"] if "/virtualenvs/" in here.prefix else ["poetry", "-C", here.folder]


def pipenv(call: Call, here: Environment) -> str:
    return joined("pipenv", "install", ["--index", call.index] if call.index else [], call.packages)
