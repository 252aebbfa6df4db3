"""Lines of a long log that only repeat others: rules about the words of a text need not read the same line thousands of times."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

Lines = Sequence[tuple[int, str]]

MOST_LINES = 4000  # a text with fewer is read whole
EACH = 50  # lines of the same shape that are read, at each end
_VALUE = re.compile(r"\w*\d[\w.:]*")
_CODE = re.compile(r"(?<![\w.:/-])-?\d{1,4}(?![\w.:/-])")


class Recurring:
    """The lines of a text by shape: what remains of a line without its numbers."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._groups: dict[str, list[int]] = {}  # shape -> places of its lines
        if len(lines) > MOST_LINES:
            for place, (_, line) in enumerate(lines):
                self._groups.setdefault(_VALUE.sub("0", line), []).append(place)

    def thinned(self) -> Lines:
        """The first and the last lines of each shape; between them, those with new short numbers, such as codes."""
        if not self._groups:
            return self._lines
        return [self._lines[place] for place in sorted(place for group in self._groups.values() for place in self._read(group))]

    def like(self, numbers: Collection[int]) -> set[int]:
        """Numbers of lines, with those of the lines between them that have the shape of no other line that is read."""
        found = set(numbers)
        for group in self._groups.values():
            if len(group) > 2 * EACH and all(self._lines[place][0] in found for place in self._read(group)):
                found.update(self._lines[place][0] for place in group)
        return found

    def _read(self, group: Sequence[int]) -> Iterator[int]:
        yield from group[:EACH]
        codes = {tuple(_CODE.findall(self._lines[place][1])) for place in group[:EACH]}
        most = len(codes) + EACH
        for place in group[EACH:-EACH]:
            if len(codes) >= most:
                break
            if (code := tuple(_CODE.findall(self._lines[place][1]))) not in codes:
                codes.add(code)
                yield place
        yield from group[max(EACH, len(group) - EACH) :]


def thinned(lines: Lines) -> Lines:
    """
    >>> len(thinned([(number, f"step {number}: loss 0.5{number}") for number in range(10_000)]))
    150
    """
    return Recurring(lines).thinned()
