"""`df`, with -h, -k, -m, -i or -T, and `mount` or `findmnt` for /dev/shm and the folder of temporary files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_SIZE = re.compile(r"([\d.]+)([BKMGTP]?)i?B?")
_HEAD = re.compile(r"^\s*Filesystem\s+(?:Type\s+)?(?P<unit>Size|Inodes|\d+[KM]?-blocks)\s+I?Used")
_BLOCK = {"1K-blocks": 1 << 10, "1024-blocks": 1 << 10, "1M-blocks": 1 << 20, "512-blocks": 512}
_ROW = re.compile(
    r"""
    ^\s*(?:\S+\s+)?(?:[a-z][\w.]*\s+)?     # device and type
    ([\d.,]+\w*)\s+([\d.,]+\w*)\s+([\d.,]+\w*)\s+
    \d+%\s+(/\S*)\s*$
    """,
    re.VERBOSE,
)


class Row(NamedTuple):
    """A file system: bytes, or numbers of inodes."""

    size: int
    used: int
    free: int
    point: str


def read(text: str) -> dict[str, Reply] | None:
    head, *lines = text.splitlines()
    match = _HEAD.match(head)
    rows = {row.point: row for row in _rows(lines, _BLOCK.get(match["unit"], 1))} if match else {}
    if not rows or not match:
        return None
    if match["unit"] == "Inodes":
        return {"inodes": Reply("ok", {row.point: row.free for row in rows.values() if row.size})}
    return _replies(rows)


def _replies(rows: dict[str, Row]) -> dict[str, Reply]:
    return {"disks": Reply("ok", {row.point: row._asdict() for row in rows.values()}), **_spaces(rows)}


def _rows(lines: list[str], unit: int) -> Iterator[Row]:
    for match in filter(None, map(_ROW.match, lines)):
        yield Row(size_of(match[1], unit), size_of(match[2], unit), size_of(match[3], unit), match[4])


def size_of(word: str, unit: int = 1) -> int:
    """Bytes of a word such as 1.5G; unit: those of a bare number."""
    match = _SIZE.fullmatch(word.upper().replace(",", "."))
    return int(float(match[1]) * _UNITS[match[2]] * unit) if match else 0


def _spaces(rows: dict[str, Row]) -> dict[str, Reply]:
    """/dev/shm, and /tmp or what contains it."""
    found = {"shm": _space(rows["/dev/shm"])} if "/dev/shm" in rows else {}
    temporary = rows.get("/tmp") or rows.get("/")
    return found | ({"tmp": _space(temporary)} if temporary else {})


def _space(row: Row) -> Reply:
    """df does not show whether a folder can be written or holds programs."""
    return Reply("ok", {"bytes": row.size, "free_bytes": row.free, "writable": None, "noexec": None})


def _filtered(command: str, output: str) -> dict[str, Reply] | None:
    """Rows that grep left, without the head; df counts in KiB unless an option says otherwise."""
    unit = 1 if re.search(r"\s-\w*[hH]", command) else _BLOCK["1M-blocks" if re.search(r"\s-\w*m", command) else "1K-blocks"]
    rows = {row.point: row for row in _rows(output.splitlines(), unit)}
    return _replies(rows) if rows else None


FILTERED = prompts.reader(
    "df, filtered", ("df ", "df|"), rf"df(?:\ -(?!i)\w+)*(?:\ \S+)?\s*\|\s*{prompts.FILTER}\b.*", _filtered, most_lines=40
)
READER = Reader(
    kind="df",
    anchors=("Filesystem",),
    begins=_HEAD,
    ends=re.compile(r"^(?!.*\s\d+%\s+/|\s*\S+\s*$|.*\s-\s+/)"),
    read=read,
    most_lines=400,
)
