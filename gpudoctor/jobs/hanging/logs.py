"""What the watchdogs of PyTorch wrote into the logs of ranks: which operation of which rank did not end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

MOST_FOUND = 2000
MOST_LINE = 8192
_TIMEOUT = re.compile(
    r"""
    (?:\[PG\ (?:ID\ )?(?P<group>\d{1,18})[^\]]*?\ Rank\ (?P<pg_rank>\d{1,18})\]\ )? (?:\[Rank\ (?P<rank>\d{1,18})\]\ )?
    Watchdog\ caught\ collective\ operation\ timeout:\ Work(?P<backend>\w+)\(
    (?:SeqNum=(?P<sequence>\d{1,18}))? [^)]*? OpType=(?P<operation>\w+)
    (?: [^)]*? NumelIn=(?P<elements>\d{1,18}) )? [^)]*? \)
    """,
    re.VERBOSE,
)
_STATUS = re.compile(
    r"""
    Rank\ (?P<rank>\d{1,18})\]\s+ (?:Exception\ \([^)]*\)\ )?
    Timeout\ at\ (?:NCCL\ work|collective):?\ (?P<sequence>\d{1,18}),
    \ last\ enqueued\ (?:NCCL\ )?work:\ (?P<entered>\d{1,18}),\ last\ completed\ (?:NCCL\ )?work:\ (?P<completed>\d{1,18})
    """,
    re.VERBOSE,
)
_PREFIX = re.compile(r"\[rank(\d{1,18})\]")


class Found:
    """The watchdogs' words in a text, line by line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.timeouts: list[dict[str, Any]] = []
        self.is_filled = False
        """Whether there is more than blanks."""
        self._rest = b""

    def chunk(self, data: bytes) -> None:
        self.is_filled = self.is_filled or bool(data.strip())
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:MOST_LINE]
        for line in lines:
            self._line(line)

    def end(self) -> list[dict[str, Any]]:
        self._line(self._rest)
        self._rest = b""
        return self.timeouts

    def _line(self, line: bytes) -> None:
        if len(self.timeouts) < MOST_FOUND and (b"Watchdog caught" in line or b"last enqueued" in line):
            self.timeouts += list(_said(line[:MOST_LINE].decode("utf-8", "replace"), self.name))


def _said(line: str, name: str) -> Iterator[dict[str, Any]]:
    prefix = _PREFIX.search(line)
    if match := _TIMEOUT.search(line):
        rank = match["rank"] or (prefix and prefix[1]) or match["pg_rank"]
        if rank is not None:
            yield {
                "file": name,
                "rank": int(rank),
                "group": match["group"] or "0",
                "sequence": int(match["sequence"] or -1),
                "operation": match["operation"],
                "elements": int(match["elements"] or -1),
                "entered": -1,
                "completed": -1,
            }
    elif match := _STATUS.search(line):
        yield {
            "file": name,
            "rank": int(prefix[1] if prefix else match["rank"]),
            "group": "0",
            "sequence": int(match["sequence"]),
            "operation": "",
            "elements": -1,
            "entered": int(match["entered"]),
            "completed": int(match["completed"]),
        }


def of_texts(texts: Iterable[tuple[str, Iterable[bytes]]]) -> list[dict[str, Any]]:
    """The watchdogs' words in several texts, each given in pieces."""
    found: list[dict[str, Any]] = []
    for name, pieces in texts:
        reading = Found(name)
        for piece in pieces:
            reading.chunk(piece)
        found += reading.end()
    return found[:MOST_FOUND]
