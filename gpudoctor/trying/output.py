"""What a command prints: its beginning and its end are kept, and each line is matched, in bounded memory."""

from __future__ import annotations

import contextlib
import re

HEAD_BYTES, TAIL_BYTES = 1 << 20, 3 << 20
MOST_LINE_BYTES = 1 << 16  # of a line that is matched
MOST_UNIT = 20
_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Output:
    """until, metric: as in Goal. unit: what the metric matches behind its number."""

    def __init__(self, until: re.Pattern[str] | None = None, metric: re.Pattern[str] | None = None) -> None:
        self.has_reached = False
        self.figure: float | None = None
        self.unit = ""
        self.dropped = 0
        self._until = until
        self._metric = metric
        self._head = bytearray()
        self._tail = bytearray()
        self._lines: dict[int, bytes] = {}

    def take(self, data: bytes, source: int) -> None:
        """source: the stream; lines of two streams are not mixed."""
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if (excess := len(self._tail) - TAIL_BYTES) > TAIL_BYTES:  # not at each piece: moving the rest costs time
            del self._tail[:excess]
            self.dropped += excess
        if self._until or self._metric:
            self._match(data, source)

    def end(self) -> None:
        """Matches what was printed without an end of line."""
        for rest in self._lines.values():
            self._look(rest)
        self._lines.clear()

    def kept(self) -> bytes:
        excess = max(0, len(self._tail) - TAIL_BYTES)
        self.dropped += excess
        del self._tail[:excess]
        between = b"\n[gpudoctor: %d bytes left out]\n" % self.dropped if self.dropped else b""
        return bytes(self._head) + between + bytes(self._tail)

    def _match(self, data: bytes, source: int) -> None:
        *lines, rest = re.split(rb"[\r\n]", self._lines.get(source, b"") + data)
        for line in lines:
            self._look(line)
        self._lines[source] = rest[-MOST_LINE_BYTES:]
        if self._until and self._until.search(_text(rest)):  # a prompt has no end of line
            self.has_reached = True

    def _look(self, line: bytes) -> None:
        text = _text(line[-MOST_LINE_BYTES:])
        if self._until and self._until.search(text):
            self.has_reached = True
        for found in self._metric.finditer(text) if self._metric else ():
            number = found[1] if found.re.groups else found[0]
            with contextlib.suppress(ValueError):
                self.figure = float((number or "").replace(",", ""))
                self.unit = found[0][found.end(1) - found.start() :].strip()[:MOST_UNIT] if found.re.groups else ""


def _text(line: bytes) -> str:
    return _COLOUR.sub(b"", line).decode("utf-8", "replace")
