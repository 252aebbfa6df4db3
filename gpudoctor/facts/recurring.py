"""Lines of a long log that only repeat others: rules about the words of a text need not read the same line thousands of times."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

Lines = Sequence[tuple[int, str]]

MOST_LINES = 400  # a text with fewer is read whole
EACH = 20  # lines of the same shape that are read, at each end
OFTEN = 40  # lines with a word that is not rare
OF_WORD = 5  # routine lines with the same word that are read, at each end
BEFORE, AFTER = 8, 16  # lines around one with a rare word, none of which is routine
_VALUE = re.compile(r"\w*\d[\w.:]*")
_WORD = re.compile(r"[^\W\d_]+")
_CODE = re.compile(r"(?<![\w.:/-])-?\d{1,4}(?![\w.:/-])")


class Recurring:
    """The lines of a text by shape: what remains of a line without its numbers.

    A line is routine if its shape is not frequent, but all of its words are: a program that writes names in ever new orders.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._groups: dict[str, list[int]] = {}  # shape -> places of its lines
        self._routine: dict[int, frozenset[str]] = {}  # place -> words
        if len(lines) > MOST_LINES:
            for place, (_, line) in enumerate(lines):
                self._groups.setdefault(_VALUE.sub("0", line), []).append(place)
            self._routine = dict(sorted(self._without_rare_words()))

    def _without_rare_words(self) -> Iterator[tuple[int, frozenset[str]]]:
        words = {shape: frozenset(_WORD.findall(shape)) for shape in self._groups}
        count: Counter[str] = Counter()
        for shape, group in self._groups.items():
            for word in words[shape]:
                count[word] += len(group)
        rare = {word for word, times in count.items() if times < OFTEN}
        told = sorted(self._lines[place][0] for shape, group in self._groups.items() if words[shape] & rare for place in group)
        for shape, group in self._groups.items():
            if len(group) <= 2 * EACH and words[shape] and not words[shape] & rare:
                yield from ((place, words[shape]) for place in group if not self._is_near(place, told))

    def _is_near(self, place: int, numbers: Sequence[int]) -> bool:
        number = self._lines[place][0]
        return bisect_left(numbers, number - AFTER) < bisect_right(numbers, number + BEFORE)

    def thinned(self) -> Lines:
        """The first and the last lines of each shape; between them, those with new short numbers, such as codes.

        Of routine lines, the first and the last with each word.
        """
        if not self._groups:
            return self._lines
        read = {place for group in self._groups.values() for place in self._read(group)}
        return [self._lines[place] for place in sorted((read - self._routine.keys()) | self._read_routine)]

    @cached_property
    def _read_routine(self) -> set[int]:
        return {*self._first_of_words(self._routine), *self._first_of_words(reversed(self._routine))}

    def _first_of_words(self, routine: Iterable[int]) -> Iterator[int]:
        seen: Counter[str] = Counter()
        for place in routine:
            words = self._routine[place]
            if any(seen[word] < OF_WORD for word in words):
                seen.update(words)
                yield place

    def like(self, numbers: Collection[int]) -> set[int]:
        """Numbers of lines, with those of the lines between them that have the shape of no other line that is read.

        Routine lines are one shape here.
        """
        found = set(numbers)
        if self._routine and all(self._lines[place][0] in found for place in self._read_routine):
            found.update(self._lines[place][0] for place in self._routine)
        for group in self._groups.values():
            if len(group) > 2 * EACH and all(self._lines[place][0] in found for place in self._read(group)):
                found.update(self._lines[place][0] for place in group)
        return found

    def _read(self, group: Sequence[int]) -> Iterator[int]:
        if len(group) <= 2 * EACH:
            yield from group
            return
        yield from group[:EACH]
        codes = {tuple(_CODE.findall(self._lines[place][1])) for place in group[:EACH]}
        most = len(codes) + EACH
        for place in group[EACH:-EACH]:
            if len(codes) >= most:
                break
            if (code := tuple(_CODE.findall(self._lines[place][1]))) not in codes:
                codes.add(code)
                yield place
        yield from group[-EACH:]


def thinned(lines: Lines) -> Lines:
    """
    >>> len(thinned([(number, f"step {number}: loss 0.5{number}") for number in range(10_000)]))
    60
    """
    return Recurring(lines).thinned()
