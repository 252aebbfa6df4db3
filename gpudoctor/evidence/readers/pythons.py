"""Which Python and which pip a shell starts: `which`, `where`, `pip --version`, the environment of `conda list`."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_PATH = re.compile(r"(?:/\S+|[A-Za-z]:\\[^\n\"]*?)(?:python|pip)[\d.]*(?:\.exe)?\s*$", re.IGNORECASE)
_PIP = re.compile(r"^pip \S+ from (?P<site>\S.*?) \(python (?P<version>\d+\.\d+)\)\s*$")
_CONDA = re.compile(r"^# packages in environment at (?P<folder>\S.*?):?\s*$")
_EXECUTABLE = re.compile(r"^['\"]?(?P<path>(?:/|[A-Za-z]:\\)\S*python[\d.]*(?:\.exe)?)['\"]?$")


def _which(command: str, output: str) -> dict[str, Reply] | None:
    """The first path of each program, which the shell starts."""
    found: dict[str, str] = {}
    for path in (line.strip() for line in output.splitlines()):
        if _PATH.match(path):
            name = re.split(r"[/\\]", path)[-1].lower()
            found.setdefault("pip" if name.startswith("pip") else "python", path)
    return {"shown-pythons": Reply("ok", found)} if found else None


def _pip(text: str) -> dict[str, Reply] | None:
    match = _PIP.match(text)
    return {"shown-pythons": Reply("ok", {"pip_site": match["site"], "pip_version": match["version"]})} if match else None


def _conda(text: str) -> dict[str, Reply] | None:
    match = _CONDA.match(text)
    return {"shown-pythons": Reply("ok", {"conda": match["folder"]})} if match else None


_ONE_LINE = re.compile("")
READERS = (
    prompts.reader(
        "which python",
        ("which ", "where ", "where.exe", "command -v ", "type -a "),
        r"(?:which|where(?:\.exe)?|command\ -v|type\ -a)(?:\ -a)?(?:\ (?:python|pip)[\d.]*(?:\.exe)?)+(?:;\s*!?which\ \w+)*",
        _which,
        most_lines=12,
    ),
    Reader("pip --version", ("(python ",), _PIP, _pip, _ONE_LINE, 1),
    Reader("", ("# packages in environment at",), _CONDA, _conda, _ONE_LINE, 1, once=True),
)
