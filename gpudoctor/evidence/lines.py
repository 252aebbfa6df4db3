"""Lines of a text: how they are cut from its bytes and shown, and which are kept around those that matter."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

CHUNK_BYTES = 4 << 20
BEFORE, AFTER = 2, 8  # lines that are kept around one that matters
LINE_CHARACTERS = 2000  # of either end of a very long line, and on either side of what matters in it
KEPT_BYTES = 32 << 20
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces, however long, as chunks of whole lines of some MB; a line that is longer is cut."""
    kept = b""
    for block in _blocks(pieces):
        chunk = kept + block
        end = chunk.rfind(b"\n") + 1
        if not end and len(chunk) < 2 * CHUNK_BYTES:
            kept = chunk
            continue
        end = end or len(chunk)
        yield chunk[:end]
        kept = chunk[end:]
    if kept:
        yield kept + b"\n"


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """All of one size, so that nothing depends on how the text came."""
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            joined = b"".join(gathered)
            yield from (joined[at : at + CHUNK_BYTES] for at in range(0, size - CHUNK_BYTES + 1, CHUNK_BYTES))
            gathered = [joined[size - size % CHUNK_BYTES :]]
            size %= CHUNK_BYTES
    if size:
        yield b"".join(gathered)


def end_of(chunk: bytes, start: int) -> int:
    end = chunk.find(b"\n", start)
    return len(chunk) if end < 0 else end


def clean(line: bytes) -> str:
    """Without colours and NULs; of what a progress bar overwrote the last; of a very long line the two ends."""
    text = _COLOURS.sub("", line.decode("utf-8", "replace")).rstrip("\r\n").replace("\0", "")
    if "\r" in text:
        text = text.rsplit("\r", 1)[-1]
    if len(text) > 2 * LINE_CHARACTERS:
        text = f"{text[:LINE_CHARACTERS]} … {text[-LINE_CHARACTERS:]}"
    return text


def around(line: bytes, position: int) -> bytes:
    """What matters of a line, which stands at a position: between two carriage returns, and of a long line its neighbourhood."""
    first, last = max(position - LINE_CHARACTERS, 0), position + LINE_CHARACTERS
    start = line.rfind(b"\r", first, position) + 1 or first
    end = line.find(b"\r", position, last)
    return line[start : last if end < 0 else end]


class Kept:
    """The first and the last lines with each anchor, with those around them. limits: how many of each anchor, at either end."""

    def __init__(self, limits: Sequence[int]) -> None:
        self.limits = list(limits)
        self.firsts: list[list[int]] = [[] for _ in limits]
        self.latest: list[deque[int]] = [deque(maxlen=limit) for limit in limits]
        self.stored: dict[int, str] = {}
        self.size = 0
        self.owed = 0  # lines up to this number are wanted, which the next chunk has
        self.before: list[tuple[int, bytes]] = []  # the end of the chunk before

    def take(self, chunk: bytes, first: int, hits: Iterable[tuple[int, int, int, int]]) -> None:
        """A chunk of whole lines, of which the first has this number, and what was found in it, in its order."""
        at, number = self._store(chunk, 0, first, self.owed)
        whole, whole_at = b"", -1
        for line, start, position, anchor in hits:
            self._note(anchor, line)
            if line - BEFORE > number:
                at, number = _back(chunk, start, line)
            elif line - BEFORE < first:
                for place, text in self.before[max(len(self.before) - BEFORE, 0) :]:
                    if place >= line - BEFORE:
                        self._keep(place, text)
            at, number = self._store(chunk, at, number, line + AFTER)
            if start != whole_at:
                whole, whole_at = chunk[start : end_of(chunk, start)], start
            self._point_at(whole, line, position - start)
        self.before = _last(chunk, first)
        if self.size > KEPT_BYTES:
            self._prune()

    def room(self, anchor: int) -> int:
        """How many of its lines are still to be kept as first ones."""
        return max(self.limits[anchor] - len(self.firsts[anchor]), 0)

    def _note(self, anchor: int, line: int) -> None:
        firsts = self.firsts[anchor]
        if len(firsts) < self.limits[anchor]:
            firsts.append(line)
        else:
            self.latest[anchor].append(line)

    def _store(self, chunk: bytes, at: int, number: int, last: int) -> tuple[int, int]:
        """Lines from `number`, which starts at `at`, to `last`; the place and the number of the next."""
        while number <= last and at < len(chunk):
            end = end_of(chunk, at)
            self._keep(number, chunk[at:end])
            at, number = end + 1, number + 1
        self.owed = max(self.owed, last)
        return at, number

    def _keep(self, number: int, line: bytes) -> None:
        if number not in self.stored:  # the rest of a line that was cut
            self.stored[number] = clean(line)
            self.size += len(self.stored[number])

    def _point_at(self, line: bytes, number: int, position: int) -> None:
        """Of a long line, or one that a progress bar wrote, what matters is kept beside its ends."""
        if len(line) <= 2 * LINE_CHARACTERS and b"\r" not in line[:-1]:
            return
        part, known = clean(around(line, position)), self.stored[number]
        if part not in known and len(known) < 8 * LINE_CHARACTERS:
            self.stored[number] = f"{known} … {part}"
            self.size += len(part)

    def _prune(self) -> None:
        """Drops lines around what is no longer among the last; where that does not help, fewer are kept from now on."""
        wanted = self.wanted()
        self.stored = {number: line for number, line in self.stored.items() if number in wanted or number > self.owed - AFTER}
        self.size = sum(map(len, self.stored.values()))
        if self.size > KEPT_BYTES // 2:
            self.limits = [max(limit // 2, 1) for limit in self.limits]
            self.firsts = [firsts[:limit] for firsts, limit in zip(self.firsts, self.limits, strict=True)]
            self.latest = [deque(latest, maxlen=limit) for latest, limit in zip(self.latest, self.limits, strict=True)]

    def wanted(self) -> set[int]:
        hits = set(chain.from_iterable((*self.firsts, *self.latest)))
        return {number for hit in hits for number in range(hit - BEFORE, hit + AFTER + 1)}

    def kept(self) -> int:
        """How many hits."""
        return sum(map(len, self.firsts)) + sum(map(len, self.latest))

    def shown(self) -> dict[int, str]:
        wanted = self.wanted()
        return {number: line for number, line in sorted(self.stored.items()) if number in wanted and line.strip()}


def _back(chunk: bytes, start: int, number: int) -> tuple[int, int]:
    """The line BEFORE lines above, or the first of the chunk."""
    for _ in range(BEFORE):
        if start == 0:
            break
        start = chunk.rfind(b"\n", 0, start - 1) + 1
        number -= 1
    return start, number


def _last(chunk: bytes, first: int) -> list[tuple[int, bytes]]:
    """The last lines of a chunk with their numbers."""
    number = first + chunk.count(b"\n")
    start = len(chunk)
    found: list[tuple[int, bytes]] = []
    while len(found) < BEFORE and start > 0:
        end = start - 1
        start = chunk.rfind(b"\n", 0, end) + 1
        number -= 1
        found.append((number, chunk[start:end]))
    return found[::-1]
