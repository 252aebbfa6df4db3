"""Variables that gpudoctor knows nothing about: a command of any kind can depend on them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpudoctor.judging.experiments.proof import NAMED
from gpudoctor.judging.experiments.suspect import HIDDEN, VARIABLE, Surroundings, Suspect
from gpudoctor.judging.experiments.suspects import POSSIBLE, Failure
from gpudoctor.judging.texts.settings import COMMON
from gpudoctor.knowledge import suspects as known

QUOTED = NAMED // 2
READ = 60  # less than what the error is about
MOST_BYTES = 1 << 20
LEAST_CHARACTERS = 4
USUAL = re.compile(
    r"""
    PATH | HOME | USER | LOGNAME | SHELL | TERM | PWD | OLDPWD | SHLVL | _ | HOSTNAME | MAIL | DISPLAY | EDITOR | PAGER | VISUAL
    | COLORTERM | LS_COLORS | LESS\w* | PS\d | TMUX\w* | STY
    | ( SSH | DBUS | XDG | GPUDOCTOR | CONDA | PYENV | NVM | SDKMAN | BASH | ZSH | INVOCATION | JOURNAL | SYSTEMD ) _?\w*
    | VIRTUAL_ENV\w* | CONDA\w*
    | NV_\w+ | NVIDIA_(REQUIRE|DRIVER|VISIBLE|PRODUCT|BUILD)_\w+
    | (NV\w* | CU\w+ | NPP | TRT | TENSORRT | NSIGHT\w* | OPENMPI | OPENUCX | HPCX | PYTORCH | TENSORFLOW | JAX | PYTHON)
      _(BUILD_)?VERSION
    | (PIP|UV|NPM|GIT|DEBIAN)_\w+
    """,
    re.VERBOSE,
)


def with_values(found: Iterable[Suspect], values: Mapping[str, str], words: str) -> Iterator[Suspect]:
    """Variables whose value the output contains, such as the name of a host or an interface, are likelier.

    values: also those that are never shown.
    """
    for suspect in found:
        value = values.get(suspect.name, "") if suspect.kind == VARIABLE else ""
        is_named = (
            suspect.weight < QUOTED and _is_distinctive(value) and re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w-])", words)
        )
        yield replace(suspect, reason="the output contains its value", weight=QUOTED) if is_named else suspect


def named_by(sources: str, found: Iterable[Suspect]) -> Iterator[Suspect]:
    """Variables that the program's own files name, which therefore reads them, are likelier. sources: the text of these files."""
    words = frozenset(re.findall(r"[A-Z_][A-Z0-9_]{2,}", sources))
    for suspect in found:
        is_read = suspect.kind == VARIABLE and suspect.weight < READ and suspect.name in words
        yield replace(suspect, reason="the program's own file names it", weight=READ) if is_read else suspect


def own_files(argv: Sequence[str]) -> str:
    """The text of the files of a command line, such as a script in Python or bash; "" for programs and large files."""
    return "\n".join(filter(None, map(_text, argv)))


def _text(path: str) -> str:
    try:
        if not Path(path).is_file():
            return ""
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError):
        return ""
    return "" if len(data) > MOST_BYTES or b"\0" in data else data.decode("utf-8", "replace")


def _is_distinctive(value: str) -> bool:
    return len(value) >= LEAST_CHARACTERS and "/" not in value and value.lower() not in COMMON


def others(surroundings: Surroundings, failure: Failure) -> Iterator[Suspect]:
    """The variables that are in no table; the likeliest are those that the output names, or whose path its last line names."""
    rows = known.table()
    in_tables = {row.name for row in (*rows.kept, *rows.lists, *rows.folders)}
    for name, value in surroundings.variables.items():
        if name in in_tables or known.variable(name) or USUAL.fullmatch(name):
            continue
        is_path = value.count("/") > 1 and value in failure.last_line
        if is_path or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", failure.words):
            yield Suspect(VARIABLE, name, HIDDEN, "the output names it", NAMED)
        else:
            yield Suspect(VARIABLE, name, HIDDEN, "the command inherits it", POSSIBLE)
