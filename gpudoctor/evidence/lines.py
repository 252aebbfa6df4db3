"""Lines of a text: cuts them from bytes, formats them, and keeps those around relevant lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from gpudoctor.facts.texts import LINE_CHARACTERS, plain_line

CHUNK_BYTES = 4 << 20
BEFORE, AFTER = 2, 8  # lines to keep around a relevant line
SURROUNDED = 200  # lines per anchor, at each end, around which others are kept
KEPT_BYTES = 32 << 20


def chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Turns pieces of any size into chunks of whole lines of some MB; a longer line is cut."""
    kept = b""
    for block in _blocks(pieces):
        end = block.rfind(b"\n") + 1
        if not end and len(kept) + len(block) < 2 * CHUNK_BYTES:
            kept += block
            continue
        end = end or len(block)
        yield b"".join((kept, memoryview(block)[:end]))
        kept = block[end:]
    if kept:
        yield kept + b"\n"


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks of equal size, so that the result does not depend on how the text arrived."""
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
    return plain_line(line.decode("utf-8", "replace"))


def around(line: bytes, position: int) -> bytes:
    """The part of a line around a position: between two carriage returns, and in a long line at most LINE_CHARACTERS away."""
    first, last = max(position - LINE_CHARACTERS, 0), position + LINE_CHARACTERS
    start = line.rfind(b"\r", first, position) + 1 or first
    end = line.find(b"\r", position, last)
    return line[start : last if end < 0 else end]


def _cleaned(line: bytes | str) -> str:
    return line if isinstance(line, str) else clean(line)


class Kept:
    """The first and last lines with each anchor, with the lines around most of them. limits: lines per anchor, at each end."""

    def __init__(self, limits: Sequence[int]) -> None:
        self.limits = limits
        self.firsts: dict[int, list[int]] = {}
        self.latest: dict[int, deque[int]] = {}
        self.stored: dict[int, bytes | str] = {}  # most are dropped before anybody reads them: bytes are cleaned when shown
        self.size = 0
        self.owed = 0  # lines up to this number, in the next chunk, are wanted
        self.before: list[tuple[int, bytes]] = []  # the end of the previous chunk

    def take(self, chunk: bytes, first: int, hits: Iterable[tuple[int, int, int, int]]) -> None:
        """Adds a chunk of whole lines starting at line number `first`, with the hits in it, in order."""
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
        """How many more of its lines can be kept as first lines."""
        return max(self.limits[anchor] - len(self.firsts.get(anchor, ())), 0)

    def _note(self, anchor: int, line: int) -> None:
        firsts = self.firsts.setdefault(anchor, [])
        if len(firsts) < self.limits[anchor]:
            firsts.append(line)
        else:
            self.latest.setdefault(anchor, deque(maxlen=self.limits[anchor])).append(line)

    def _store(self, chunk: bytes, at: int, number: int, last: int) -> tuple[int, int]:
        """Stores the lines from `number`, which starts at `at`, to `last`; returns start and number of the next line."""
        stored = self.stored
        while number <= last and at < len(chunk):
            end = end_of(chunk, at)
            if number not in stored:
                self._keep(number, chunk[at:end])
            at, number = end + 1, number + 1
        self.owed = max(self.owed, last)
        return at, number

    def _keep(self, number: int, line: bytes) -> None:
        if number not in self.stored:  # the rest of a line that was cut
            self.stored[number] = kept = line if len(line) <= 2 * LINE_CHARACTERS else clean(line)
            self.size += len(kept)

    def _point_at(self, line: bytes, number: int, position: int) -> None:
        """In a long line or a progress bar's line, keeps the part around the hit in addition to the ends."""
        if len(line) <= 2 * LINE_CHARACTERS and b"\r" not in line[:-1]:
            return
        part, known = clean(around(line, position)), _cleaned(self.stored[number])
        if part not in known and len(known) < 8 * LINE_CHARACTERS:
            self.stored[number] = f"{known} … {part}"
            self.size += len(part)

    def _prune(self) -> None:
        """Drops lines around hits that are no longer among the last; if that is not enough, fewer are kept from now on."""
        wanted = self.wanted()
        self.stored = {number: line for number, line in self.stored.items() if number in wanted or number > self.owed - AFTER}
        self.size = sum(map(len, self.stored.values()))
        if self.size > KEPT_BYTES // 2:
            self.limits = [max(limit // 2, 1) for limit in self.limits]
            self.firsts = {anchor: firsts[: self.limits[anchor]] for anchor, firsts in self.firsts.items()}
            self.latest = {anchor: deque(latest, maxlen=self.limits[anchor]) for anchor, latest in self.latest.items()}

    def wanted(self) -> set[int]:
        """The hits, with the lines around the first and the last of each anchor."""
        with_others = set(chain.from_iterable(firsts[:SURROUNDED] for firsts in self.firsts.values()))
        with_others.update(chain.from_iterable(list(latest)[-SURROUNDED:] for latest in self.latest.values()))
        hits = chain.from_iterable((*self.firsts.values(), *self.latest.values()))
        return {*hits, *(number for hit in with_others for number in range(hit - BEFORE, hit + AFTER + 1))}

    def kept(self) -> int:
        """The number of kept hits."""
        return sum(map(len, (*self.firsts.values(), *self.latest.values())))

    def shown(self) -> dict[int, str]:
        wanted = self.wanted()
        lines = ((number, _cleaned(line)) for number, line in sorted(self.stored.items()) if number in wanted)
        return {number: line for number, line in lines if line.strip()}


def _back(chunk: bytes, start: int, number: int) -> tuple[int, int]:
    """The start and number of the line BEFORE lines above, or of the first line of the chunk."""
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
