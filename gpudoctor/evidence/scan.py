"""Reads a text of any size once, and keeps the relevant lines and the blocks that a reader understands.

A line is relevant if it contains a literal part of a message's pattern or of a reader's first line. A small text is kept whole.
The result does not depend on the pieces in which the text arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import chain
from typing import NamedTuple

from gpudoctor.evidence import kernel
from gpudoctor.evidence.blocks import Blocks
from gpudoctor.evidence.excerpt import Excerpt
from gpudoctor.evidence.lines import Kept, chunks, clean
from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.search import FREQUENT, Places, Search
from gpudoctor.knowledge import messages
from gpudoctor.knowledge.languages import in_english

WHOLE_BYTES = 1 << 18
MOST = 200  # lines with the same anchor, at the beginning and again at the end
OF_KERNEL = 10  # times as many for lines of a kernel log
AHEAD = 2  # chunks that are sought while one is read
OF_READERS = 1000  # lines of one chunk where a block can begin, at each end


class _Anchor(NamedTuple):
    """A literal, and the readers whose text can begin with it. most: how many of its lines are kept, at each end."""

    text: str
    readers: tuple[int, ...]
    most: int


def scan(beginning: bytes, rest: Iterable[bytes], readers: Sequence[Reader]) -> Excerpt:
    """Extracts the relevant parts of a text that arrives in pieces; memory use does not depend on its size."""
    return _Scanner(tuple(readers)).run(chain((beginning,), rest))


class _Scanner:
    def __init__(self, readers: tuple[Reader, ...]) -> None:
        texts, most, often = _columns(readers)
        self.search = Search(texts, most, often)
        self.readers = readers
        self.blocks: dict[int, Blocks] = {}  # of the readers whose anchors were seen
        self.of_anchors = _of_anchors(readers)
        self.kept = Kept(most)
        self.lines = self.bytes = self.hits = 0

    def run(self, pieces: Iterable[bytes]) -> Excerpt:
        whole = b""
        searched = self._searched(pieces)
        latest = next(searched, None)
        while latest:
            chunk, places = latest
            latest = next(searched, None)
            self._take(chunk, places, latest[1] if latest else {})
            whole = whole + chunk if self.bytes <= WHOLE_BYTES else b""
        every = {number: text for number, line in enumerate(whole.split(b"\n"), 1) if (text := clean(line)).strip()}
        return Excerpt(
            lines={**every, **self.kept.shown()},
            blocks=sorted(
                (block for _, blocks in sorted(self.blocks.items()) for block in blocks.all()), key=lambda block: block.first
            ),
            total_lines=self.lines,
            bytes=self.bytes,
            left_out=0 if every else self.hits - self.kept.kept(),
        )

    def _searched(self, pieces: Iterable[bytes]) -> Iterator[tuple[bytes, Places]]:
        """The chunks of a text with the places of literals, which a thread seeks in one chunk while another is read."""
        with ThreadPoolExecutor(1) as pool:
            coming: deque[tuple[bytes, Future[Places]]] = deque()
            for number, chunk in enumerate(chunks(pieces)):
                chunk = chunk if number or len(chunk) > WHOLE_BYTES else in_english(chunk)
                coming.append((chunk, pool.submit(self.search.find, chunk)))
                if len(coming) > AHEAD:
                    chunk, places = coming.popleft()
                    yield chunk, places.result()
            yield from ((chunk, places.result()) for chunk, places in coming)

    def _take(self, chunk: bytes, places: Places, following: Places) -> None:
        first = self.lines + 1
        own: dict[int, set[int]] = {place: set() for place, blocks in self.blocks.items() if blocks.open}
        for index, found in places.items():
            if readers := self.of_anchors[index]:
                starts = set(_starts(chunk, found))
                for place in readers:
                    own.setdefault(place, set()).update(starts)
        chosen = [(chunk.rfind(b"\n", 0, place) + 1, place, index) for place, index in sorted(self._chosen(places, following))]
        numbers = dict(_numbered(chunk, first, sorted({*(start for start, _, _ in chosen), *chain(*own.values()), len(chunk)})))
        for reader, lines in own.items():
            blocks = self.blocks.get(reader) or self.blocks.setdefault(reader, Blocks(self.readers[reader]))
            if not blocks.is_done:
                blocks.take(chunk, first, ((numbers[start], start) for start in sorted(lines)))
        self.kept.take(chunk, first, ((numbers[start], start, place, index) for start, place, index in chosen))
        self.hits += sum(map(len, places.values()))
        self.bytes += len(chunk)
        self.lines = numbers[len(chunk)] - 1

    def _chosen(self, places: Places, following: Places) -> Iterator[tuple[int, int]]:
        """Each (place, literal) whose line is kept: for a literal in thousands of lines, the first and the last.

        following: what the next chunk has.
        """
        for index, found in places.items():
            most, room = self.kept.limits[index], self.kept.room(index)
            yield from ((place, index) for place in found[:room])
            if len(following.get(index, ())) < most:
                yield from ((place, index) for place in found[room:][-most:])


def _starts(chunk: bytes, places: list[int]) -> Iterator[int]:
    """The start of each line of a chunk where a block can begin."""
    for place in places if len(places) <= 2 * OF_READERS else places[:OF_READERS] + places[-OF_READERS:]:
        yield chunk.rfind(b"\n", 0, place) + 1


def _numbered(chunk: bytes, number: int, starts: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The start of each line, and its number. number: of the first line."""
    at = 0
    for start in starts:
        number += chunk.count(b"\n", at, start)
        at = start
        yield start, number


@cache
def _of_anchors(readers: tuple[Reader, ...]) -> tuple[tuple[int, ...], ...]:
    """The readers of each anchor."""
    return tuple(anchor.readers for anchor in _anchors(readers))


@cache
def _columns(readers: tuple[Reader, ...]) -> tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]:
    """The literals, how many lines of each are kept, at each end, and how many in one chunk are more than enough."""
    anchors = _anchors(readers)
    often = tuple(FREQUENT if anchor.readers else 2 * anchor.most for anchor in anchors)
    return tuple(anchor.text for anchor in anchors), tuple(anchor.most for anchor in anchors), often


@cache
def _anchors(readers: tuple[Reader, ...]) -> tuple[_Anchor, ...]:
    of_readers: dict[str, tuple[int, ...]] = {}
    for place, reader in enumerate(readers):
        for text in reader.anchors:
            of_readers[text] = (*of_readers.get(text, ()), place)
    of_kernel = set(kernel.ANCHORS)
    texts = dict.fromkeys((*of_readers, *kernel.ANCHORS, *messages.anchors()))
    return tuple(_Anchor(text, of_readers.get(text, ()), MOST * (OF_KERNEL if text in of_kernel else 1)) for text in texts)
