"""Collects the blocks that a reader understands, such as one output of `nvidia-smi -q`, from a stream of text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpudoctor.evidence.lines import clean, end_of
from gpudoctor.evidence.reader import Reader

FIRST, LAST = 4, 4  # blocks to keep for each reader


@dataclass(frozen=True)
class Block:
    """A text that a reader understands, starting at line `first`."""

    reader: Reader
    first: int
    text: str


@dataclass
class _Open:
    """A block whose end has not been reached."""

    first: int
    lines: list[str] = field(default_factory=list)
    size: int = 0


class Blocks:
    """The blocks of one reader. A block that is too long is cut off."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.firsts: list[Block] = []
        self.latest: deque[Block] = deque(maxlen=LAST)
        self.open: _Open | None = None

    @property
    def is_done(self) -> bool:
        return self.reader.once and bool(self.firsts)

    def take(self, chunk: bytes, first: int, hits: Iterable[tuple[int, int]]) -> None:
        """Adds a chunk of whole lines starting at line number `first`. hits: (number, start) of lines where a block can begin."""
        read_to = self._continue(chunk, 0, first) if self.open else first
        for number, start in hits:
            if self.is_done:
                return
            line = clean(chunk[start : end_of(chunk, start)])
            if number >= read_to and not self.open and self.reader.begins.search(line):
                self.open = _Open(number)
                read_to = self._continue(chunk, start, number)

    def _continue(self, chunk: bytes, start: int, number: int) -> int:
        """Extends the open block; returns the number of the first line that does not belong to it."""
        block = self.open
        while block and start < len(chunk):
            end = end_of(chunk, start)
            if not self._takes(block, clean(chunk[start:end])):
                self._close(block)
                break
            start, number = end + 1, number + 1
        return number

    def _takes(self, block: _Open, line: str) -> bool:
        reader = self.reader
        is_over = block.lines and reader.ends and reader.ends.search(line)
        if is_over or len(block.lines) >= reader.most_lines or block.size > reader.most_bytes:
            return False
        block.lines.append(line)
        block.size += len(line)
        return True

    def _close(self, block: _Open) -> None:
        closed = Block(self.reader, block.first, "\n".join(block.lines) + "\n")
        (self.firsts if len(self.firsts) < FIRST else self.latest).append(closed)
        self.open = None

    def all(self) -> list[Block]:
        """All blocks, after the last chunk."""
        if self.open:
            self._close(self.open)
        return [*self.firsts, *self.latest]
