"""Reads a chrome trace of any size event by event, in bounded memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

CHUNK = 4 << 20  # characters
MOST_EVENT = 64 << 20  # characters of one event; what is longer is no trace
START = re.compile(r'"traceEvents"\s*:\s*\[')
SEPARATORS = ", \n\r\t"


class Trace:
    """Iterates over the events. base_ns: what their times are relative to. is_cut: it ended in the middle, or was too long."""

    def __init__(self, path: Path) -> None:
        self.is_cut = False
        self.head: dict[str, Any] = {}
        self._path = path

    @property
    def base_ns(self) -> int:
        value = self.head.get("baseTimeNanoseconds", 0)
        return value if isinstance(value, int) else 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with self._path.open(encoding="utf-8", errors="replace") as file:
            yield from self._events(file)

    def _events(self, file: TextIO) -> Iterator[dict[str, Any]]:
        buffer, found = "", None
        while found is None:
            piece = file.read(CHUNK)
            buffer += piece
            found = START.search(buffer)
            if not piece or (found is None and len(buffer) > MOST_EVENT):
                self.is_cut = found is None
                break
        if found is None:
            return
        self.head = _head(buffer[: found.start()])
        yield from self._rest(file, buffer[found.end() :])

    def _rest(self, file: TextIO, buffer: str) -> Iterator[dict[str, Any]]:
        decode = json.JSONDecoder().raw_decode
        at = 0
        while True:
            while at < len(buffer) and buffer[at] in SEPARATORS:
                at += 1
            if buffer[at : at + 1] == "]":
                return
            try:
                event, at = decode(buffer, at)
            except RecursionError:
                self.is_cut = True
                return
            except ValueError:
                piece = file.read(CHUNK)
                if not piece or len(buffer) - at > MOST_EVENT:
                    self.is_cut = True
                    return
                buffer, at = buffer[at:] + piece, 0
                continue
            if isinstance(event, dict):
                yield event


def _head(text: str) -> dict[str, Any]:
    """What stands before the events."""
    try:
        value = json.loads(text.rstrip().rstrip(",") + "}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
