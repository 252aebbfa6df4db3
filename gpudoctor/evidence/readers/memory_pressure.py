"""How full the host's memory and swap are, as top and free print it."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TOP = re.compile(r"^\s*(?:[KMG]iB|[KMG]B) Mem\s*:\s+[\d.,]+\s+total")
_SIZE = r"(\d+(?:\.\d+)?)\+?\s+{}"
_FREE = re.compile(r"^\s*total\s+used\s+free\s+shared\s+buff/cache\s+available\s*$")
_COMMA = re.compile(r"(?<=\d),(?=\d)")  # of numbers in other languages
_CELL = re.compile(r"^(\d+(?:\.\d+)?)([KMGTB]?)i?B?$")


def _shares(total: float, available: float, swap: float, swap_free: float) -> dict[str, Reply] | None:
    if not total:
        return None
    return {"shown-memory": Reply("ok", {"available": available / total, **({"swap_free": swap_free / swap} if swap else {})})}


def _top(text: str) -> dict[str, Reply] | None:
    """Both lines have one unit; what is available stands at the end of the second."""
    memory, *rest = _COMMA.sub(".", text).splitlines()
    swap = rest[0] if rest else ""
    sizes = [
        re.search(_SIZE.format(word), line)
        for line, word in ((memory, "total"), (swap, "avail"), (swap, "total"), (swap, "free"))
    ]
    found = [float(size[1]) for size in sizes if size]
    return _shares(*found) if len(found) == len(sizes) else None


def _free(text: str) -> dict[str, Reply] | None:
    lines = _COMMA.sub(".", text).splitlines()[1:]
    rows = {words[0]: [_bytes(word) for word in words[1:]] for words in map(str.split, lines) if words}
    memory, swap = rows.get("Mem:", []), rows.get("Swap:", [0, 0, 0])
    return _shares(memory[0], memory[5], swap[0], swap[2]) if len(memory) == _COLUMNS and len(swap) == _OF_SWAP else None


_COLUMNS, _OF_SWAP = 6, 3


def _bytes(word: str) -> float:
    match = _CELL.match(word)
    return float(match[1]) * _UNITS[match[2]] if match else 0


READERS = (
    Reader("top", ("iB Mem", "KB Mem", "MB Mem"), _TOP, _top, re.compile(r"^(?!.*Swap)"), 2),
    Reader("how full memory is", ("buff/cache",), _FREE, _free, re.compile(r"^\s*(?!Mem:|Swap:)\S|^\s*$"), 4),
)
