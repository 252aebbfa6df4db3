"""`ulimit -a` and its single limits, `prlimit`, and /proc/PID/limits."""

from __future__ import annotations

import re

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

# Option of ulimit -> the limit, and the bytes of its unit.
_OPTIONS = {"l": ("memlock", 1024), "n": ("open_files", 1), "u": ("processes", 1), "s": ("stack", 1024)}
_ROW = re.compile(r"\((?:[\w-]+(?: [\w-]+)?, )?-([lnus])\)\s+(\d+|unlimited)\s*$")
_OF_PRLIMIT = {"MEMLOCK": "memlock", "NOFILE": "open_files", "NPROC": "processes", "STACK": "stack"}
_PRLIMIT = re.compile(r"^(\w+)\s+\S.*?\s(\d+|unlimited)\s+(\d+|unlimited)(?:\s+[a-z]+)?\s*$")
_BEGINS = re.compile(
    r"""
    ^[a-z][a-z\ -]+(?:\([a-z0-9\ -]+\)\s+)?     # open files, max locked memory (kbytes)
    \s*\([^)]*-[a-zA-Z]\)\s+(?:\d+|unlimited)\s*$
    """,
    re.VERBOSE,
)
_OF_PROC_BEGINS = re.compile(
    r"^\s*(?:Limit\s+Soft\ Limit\s+Hard\ Limit|Max\ (?:locked\ memory|open\ files)\ {4,}\S+\ +\S+)", re.VERBOSE
)

Limits = dict[str, list[int | None]]


def _amount(word: str, unit: int = 1) -> int | None:
    return None if word == "unlimited" else int(word) * unit


def _reply(limits: Limits) -> dict[str, Reply] | None:
    return {"limits": Reply("ok", limits)} if limits else None


def _of_ulimit(text: str) -> dict[str, Reply] | None:
    """The soft limits; ulimit -a does not show the hard ones."""
    rows = filter(None, map(_ROW.search, text.splitlines()))
    return _reply({_OPTIONS[row[1]][0]: [_amount(row[2], _OPTIONS[row[1]][1]), None] for row in rows})


def _of_one(command: str, output: str) -> dict[str, Reply] | None:
    option = re.fullmatch(r"ulimit -[SH]?([lnus])[\"']?", command)
    if option is None:
        return None
    name, unit = _OPTIONS[option[1]]
    word = (output.split() or [""])[0]
    return _reply({name: [_amount(word, unit), None]}) if re.fullmatch(r"\d+|unlimited", word) else None


def _of_prlimit(text: str) -> dict[str, Reply] | None:
    rows = filter(None, map(_PRLIMIT.match, text.splitlines()))
    return _reply({_OF_PRLIMIT[row[1]]: [_amount(row[2]), _amount(row[3])] for row in rows if row[1] in _OF_PRLIMIT})


def _of_proc(text: str) -> dict[str, Reply]:
    return {"file:/proc/self/limits": Reply("ok", text)}


READERS = (
    Reader(
        "ulimit -a",
        ("file size", "open files", "max locked memory", "core file size", "real-time non-blocking"),
        _BEGINS,
        _of_ulimit,
        re.compile(r"^(?!.*\(.*-[a-zA-Z]\)\s+(?:\d+|unlimited)\s*$)"),
        40,
    ),
    prompts.reader("ulimit", ("ulimit -",), r"ulimit\ -[SH]?[lnus]", _of_one, inside=True, most_lines=3),
    Reader(
        "prlimit",
        ("RESOURCE",),
        re.compile(r"^\s*RESOURCE\s+DESCRIPTION\s+SOFT\s+HARD"),
        _of_prlimit,
        re.compile(r"^(?![A-Z]+ )"),
        40,
    ),
    Reader(
        "/proc/PID/limits",
        ("Soft Limit", "Max locked memory", "Max open files"),
        _OF_PROC_BEGINS,
        _of_proc,
        re.compile(r"^(?!\s*(?:Max|Limit) )"),
        40,
    ),
)
