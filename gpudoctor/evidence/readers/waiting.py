"""What the CPUs wait for: the shares in `top`, `vmstat`, `iostat` and `mpstat`, and the busiest disk."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_COMMA = re.compile(r"(?<=\d),(?=\d)")  # of numbers in other languages
_TOP = re.compile(r"^\s*%?Cpu\(s\):.*?(?P<share>\d+(?:[.,]\d+)?)\s*%?\s*wa\b")
_VMSTAT = re.compile(r"^\s*r\s+b\s+swpd\s.*\bwa\b")
_CPUS = re.compile(r"^\s*(?:avg-cpu:|[\d:]+(?: [AP]M)?\s+CPU)\s+.*%iowait")
_DEVICES = re.compile(r"^\s*Device:?\s+.*%util\s*$")


def _waits(share: float) -> dict[str, Reply]:
    return {"shown-waiting": Reply("ok", {"share": share})}


def _top(text: str) -> dict[str, Reply] | None:
    match = _TOP.match(text)
    return _waits(float(match["share"].replace(",", "."))) if match else None


def _vmstat(text: str) -> dict[str, Reply] | None:
    """The mean of the rows; the first of several is the mean since the boot."""
    head, *lines = text.splitlines()
    names = head.split()
    rows = [words for words in map(str.split, lines) if len(words) == len(names) and all(map(str.isdigit, words))]
    shares = [float(row[names.index("wa")]) for row in (rows[1:] or rows)]
    return _waits(sum(shares) / len(shares)) if shares else None


def _cpus(text: str) -> dict[str, Reply] | None:
    """The row of all CPUs. The columns are counted from the end, since the head begins with words."""
    head, *lines = _COMMA.sub(".", text).splitlines()
    names = head.split()
    if "%iowait" not in names:
        return None
    place = names.index("%iowait") - len(names)
    rows = [words for words in map(str.split, lines) if len(words) >= -place and ("CPU" not in names or "all" in words[:3])]
    shares = [_number(row[place]) for row in rows]
    return _waits(shares[-1]) if shares else None


def _devices(text: str) -> dict[str, Reply] | None:
    """The device that is busiest in the last report, in percent."""
    lines = _COMMA.sub(".", text).splitlines()[1:]
    found = {words[0]: _number(words[-1]) for words in map(str.split, lines) if len(words) > _FEWEST_COLUMNS}
    name = max(found, key=lambda name: found[name], default="")
    return {"shown-busy-disk": Reply("ok", {"name": name, "percent": found[name]})} if name else None


_FEWEST_COLUMNS = 5


def _number(word: str) -> float:
    return float(word) if re.fullmatch(r"\d+(?:\.\d+)?", word) else 0.0


READERS = (
    Reader("top", ("Cpu(s):",), _TOP, _top, re.compile(""), 1),
    Reader("vmstat", (" swpd ",), _VMSTAT, _vmstat, re.compile(r"^(?!\s*\d+\s+\d+\s)"), 400),
    Reader("iostat", ("%iowait",), _CPUS, _cpus, re.compile(r"^\s*$|^\S*[$#>] "), 200),
    Reader("iostat -x", ("%util",), _DEVICES, _devices, re.compile(r"^\s*$|^\S*[$#>] "), 200),
)
