"""Finds many literals at once in a stream of text (Aho-Corasick)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import ahocorasick_rs

FREQUENT = 4000  # hits in one chunk: from then on only the last places of such a literal are searched


class Search:
    """Stays fast even if a word occurs in each of a log's millions of lines.

    most: how many of the last places the caller wants, by literal; at most FREQUENT.
    """

    def __init__(self, literals: Sequence[str], most: Sequence[int]) -> None:
        self.literals = tuple(literal.encode() for literal in literals)
        self.most = most
        self.sought = tuple(range(len(self.literals)))
        self.frequent: tuple[int, ...] = ()

    def find(self, chunk: bytes) -> list[list[int]]:
        """The places of each literal in a chunk, in order; for a frequent literal the last `most`."""
        places: list[list[int]] = [[] for _ in self.literals]
        machine = _machine(tuple(self.literals[index] for index in self.sought))
        for number, start, _ in machine.find_matches_as_indexes(chunk, overlapping=True):
            places[self.sought[number]].append(start)
        for index in self.frequent:
            places[index] = last(chunk, self.literals[index], self.most[index])
        frequent = tuple(index for index in self.sought if len(places[index]) >= FREQUENT)
        if frequent:
            self.frequent += frequent
            self.sought = tuple(index for index in self.sought if index not in frequent)
        return places


def last(chunk: bytes, literal: bytes, most: int) -> list[int]:
    """The last places of a literal, in order."""
    starts: list[int] = []
    at = len(chunk)
    while len(starts) < most and (at := chunk.rfind(literal, 0, at + len(literal) - 1)) >= 0:
        starts.append(at)
    return starts[::-1]


@cache
def _machine(literals: tuple[bytes, ...]) -> ahocorasick_rs.BytesAhoCorasick:
    return ahocorasick_rs.BytesAhoCorasick(literals, implementation=ahocorasick_rs.Implementation.DFA)
