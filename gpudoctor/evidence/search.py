"""Finds many literals at once in a stream of text (Aho-Corasick)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import ahocorasick_rs

Places = dict[int, list[int]]
"""Number of a literal -> where it is."""

FREQUENT = 4000  # hits in one chunk
MOST_FREQUENT = 40  # literals: each is sought by itself
WORTH = 100_000  # hits, which take as long as a new search without their literals takes to build


class Search:
    """Stays fast even if a word occurs in each of a log's millions of lines.

    most: how many of the last places the caller wants, by literal. often: from how many hits in one chunk on the last are enough.
    """

    def __init__(self, literals: tuple[str, ...], most: Sequence[int], often: Sequence[int]) -> None:
        self.literals = literals
        self.most = most
        self.often = often
        self.frequent: tuple[int, ...] = ()
        self.needless = 0  # hits

    def find(self, chunk: bytes) -> Places:
        """The places of each literal that is in a chunk, in order; for a frequent literal the last `most`."""
        places: Places = {}
        sought, machine = _machine(self.literals, self.frequent)
        for number, start, _ in machine.find_matches_as_indexes(chunk, overlapping=True):
            places.setdefault(sought[number], []).append(start)
        often = sorted((len(found), index) for index, found in places.items() if len(found) >= self.often[index])
        for index in self.frequent:
            if found := last(chunk, self.literals[index].encode(), self.most[index]):
                places[index] = found
        self.needless += sum(count for count, _ in often)
        if self.needless >= WORTH and len(self.frequent) < MOST_FREQUENT:
            more = [index for _, index in often[len(self.frequent) - MOST_FREQUENT :]]
            self.frequent, self.needless = (*self.frequent, *sorted(more)), 0
        return places


def last(chunk: bytes, literal: bytes, most: int) -> list[int]:
    """The last places of a literal, in order."""
    starts: list[int] = []
    at = len(chunk)
    while len(starts) < most and (at := chunk.rfind(literal, 0, at + len(literal) - 1)) >= 0:
        starts.append(at)
    return starts[::-1]


@lru_cache(maxsize=2)
def _machine(literals: tuple[str, ...], without: tuple[int, ...]) -> tuple[tuple[int, ...], ahocorasick_rs.BytesAhoCorasick]:
    """The numbers of the literals that it finds, and what finds them."""
    sought = tuple(index for index in range(len(literals)) if index not in without)
    words = [literals[index].encode() for index in sought]
    return sought, ahocorasick_rs.BytesAhoCorasick(words, implementation=ahocorasick_rs.Implementation.DFA)
