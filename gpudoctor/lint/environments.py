"""Whether pip installs into the image's own Python, or into a separate environment."""

from __future__ import annotations

import math
import re
from collections import ChainMap

from gpudoctor.lint.budget import once
from gpudoctor.lint.dockerfile import Stage, Step
from gpudoctor.lint.installs import PipInstall
from gpudoctor.lint.variables import Values

_SYSTEM_FOLDER = re.compile(r"(?:/usr(?:/local)?|/opt/conda|/root/\.local)?/bin")
_MADE = re.compile(
    r"""
    -m\ (?:venv|virtualenv)\b
    | \bvirtualenv[ ]
    | \buv\ (?:venv|sync|init)\b
    | \b(?:conda|mamba|micromamba)\ (?:env\ )?create\b
    """,
    re.VERBOSE,
)
_ENTERED = re.compile(
    r"""
    (?:^|[\s;&])(?:\.|source)\ +\S*activate
    | \b(?:conda|mamba|micromamba)\ (?:activate|run)\b
    """,
    re.VERBOSE,
)
_ELSEWHERE = ("-t", "--target", "--prefix", "--root", "--dry-run")


def elsewhere(install: PipInstall, step: Step, stage: Stage) -> bool:
    """Whether it leaves the packages of the image unchanged, or may do so."""
    texts, folder = install.command.texts, install.command.words[0].text.rpartition("/")[0]
    values: Values = ChainMap(install.command.settings, step.values)  # type: ignore[arg-type]
    if any(option in install.options for option in _ELSEWHERE) or install.command.program == "pipx":
        return True
    if install.command.program == "uv":
        return texts[1] == "add" or not _system_of_uv(install, values)
    if "--python" in texts or (folder and not _SYSTEM_FOLDER.fullmatch(folder)):
        return True
    made = _first_made(stage) <= step.line and _path_is_changed(values, _first_shell(stage) <= step.line)
    return "VIRTUAL_ENV" in values or _enters(step) or made


@once
def _enters(step: Step) -> bool:
    return bool(_ENTERED.search(step.instruction.body.text))


@once
def _first_made(stage: Stage) -> float:
    """The first line that makes an environment."""
    return next((step.line for step in stage.history if _MADE.search(step.instruction.body.text)), math.inf)


@once
def _first_shell(stage: Stage) -> float:
    """The first line that makes `conda run` the shell."""
    texts = ((step.line, step.instruction.body.text) for step in stage.history)
    return next((line for line, text in texts if '"conda"' in text and '"run"' in text), math.inf)


def _system_of_uv(install: PipInstall, values: Values) -> bool:
    """Whether uv installs into the system's Python; by default it requires a virtual environment."""
    python = install.options.get("--python", install.options.get("-p", ("",)))[-1]
    told = "--system" in install.options or values.get("UV_SYSTEM_PYTHON", "") not in ("", "0", "false")
    return told or bool(python and _SYSTEM_FOLDER.fullmatch(python.rpartition("/")[0]))


def _path_is_changed(values: Values, by_conda: bool) -> bool:
    """Whether another folder comes first in PATH, or every RUN goes through `conda run`."""
    first = values.get("PATH", "").partition(":")[0]
    return by_conda or bool(first and not first.startswith("$") and not _SYSTEM_FOLDER.fullmatch(first))
