"""Slurm's files and answers: gres.conf, slurm.conf, cgroup.conf, `scontrol show node` and `sinfo -o %G`."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

Gres = dict[str, int]
"""Type of the GPUs, "" without one -> their number."""

_GPU = re.compile(
    r"""
    \bgpu
    (?::(?P<type> [A-Za-z][\w.-]* | \d+g\.[\w.+-]+ ))?
    (?::(?P<count>\d+))?
    (?=[(,\s]|$)
    """,
    re.VERBOSE,
)
_FIELD = re.compile(r"(?i)\bGres=(\S+)")
_FILES = re.compile(r"(?i)\bFile=(\S+)")
_RANGE = re.compile(r"\[([\d,-]+)\]")
_CONSTRAIN = re.compile(r"(?im)^\s*ConstrainDevices\s*=\s*(\w+)")
_CGROUP = re.compile(
    r"""
    ^\s*(?: Constrain(?:Cores|Devices|RAMSpace|SwapSpace) | CgroupAutomount | CgroupPlugin )
    \s*=\s*\S+
    """,
    re.IGNORECASE | re.VERBOSE,
)


def gres(words: str) -> Gres:
    """The GPUs of a Gres= field.

    >>> gres("gpu:a100:4(S:0-1),gpu:1g.10gb:7")
    {'a100': 4, '1g.10gb': 7}
    """
    return {match["type"] or "": int(match["count"] or 1) for match in _GPU.finditer(words)}


def devices(text: str) -> list[str]:
    """The GPUs' device files of gres.conf, with ranges expanded; those of several nodes are the same files."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        files = _FILES.search(line) if not line.lstrip().startswith("#") else None
        if files and re.search(r"(?i)\bName=gpu\b", line):
            found |= dict.fromkeys(_expanded(files[1]))
    return list(found)


def _expanded(path: str) -> list[str]:
    numbers = _RANGE.search(path)
    if not numbers:
        return path.split(",")
    found: list[str] = []
    for part in numbers[1].split(","):
        first, _, last = part.partition("-")
        found += [f"{path[: numbers.start()]}{number}" for number in range(int(first), int(last or first) + 1)]
    return found


def _node(text: str) -> dict[str, Reply] | None:
    """`scontrol show node`, or what grep left of it."""
    field = _FIELD.search(text)
    found = gres(field[1]) if field else {}
    return {"shown-slurm": Reply("ok", {"node": found})} if found else None


def _slurm_conf(text: str) -> dict[str, Reply] | None:
    """With several kinds of nodes it is unclear which one the rest of the text is about."""
    found = [gres(field[1]) for line in text.splitlines() if (field := _FIELD.search(line))]
    return {"shown-slurm": Reply("ok", {"slurm.conf": found[0]})} if found and all(each == found[0] for each in found) else None


def _gres_conf(text: str) -> dict[str, Reply] | None:
    listed = devices(text)
    return {"shown-slurm": Reply("ok", {"gres.conf": listed})} if listed else None


def _cgroup_conf(text: str) -> dict[str, Reply]:
    said = _CONSTRAIN.search(text)
    return {"shown-slurm": Reply("ok", {"constrains": said is not None and said[1].lower() == "yes"})}


def _sinfo(text: str) -> dict[str, Reply] | None:
    head, *rows = text.splitlines()
    found = [gres(row) for row in rows if _GPU.search(row)]
    return {"shown-slurm": Reply("ok", {"node": found[0]})} if len(found) == 1 and "GRES" in head else None


READERS = (
    Reader("scontrol show node", ("Gres=", "gres="), re.compile(r"^\s+Gres=gpu\S*\s*$"), _node, re.compile(""), 1),
    Reader(
        "slurm.conf",
        ("NodeName=", "nodename="),
        re.compile(r"(?i)^\s*NodeName=\S+(?=.*\sGres=gpu)(?!.*\bFile=)"),
        _slurm_conf,
        re.compile(r"(?i)^(?!\s*NodeName=)"),
        2000,
    ),
    Reader(
        "gres.conf",
        ("Name=gpu", "name=gpu"),
        re.compile(r"(?i)^\s*(?:NodeName=\S+\s+)?(?:AutoDetect=\S+\s+)?Name=gpu\b"),
        _gres_conf,
        re.compile(r"(?i)^(?!\s*#|\s*(?:NodeName=\S+\s+)?(?:AutoDetect=\S+\s+)?(?:Name=|AutoDetect=))"),
        2000,
    ),
    Reader(
        "cgroup.conf",
        ("Constrain", "Cgroup"),
        _CGROUP,
        _cgroup_conf,
        re.compile(r"^(?!\s*#|\s*\w+\s*=\s*\S+\s*$|\s*$)"),
        60,
    ),
    Reader(
        "sinfo",
        ("GRES",),
        re.compile(r"^\s*(?=.*\bGRES\b)(?:[A-Z_():/*]+\s+){1,}[A-Z_():/*]+\s*$"),
        _sinfo,
        re.compile(r"^\s*$"),
        40,
    ),
)
