"""Finds which of some hundred literals occur in a short text (Aho-Corasick)."""

from __future__ import annotations

from collections.abc import Iterable

import ahocorasick_rs


class Literals:
    def __init__(self, literals: Iterable[str]) -> None:
        self._literals = tuple(literals)
        self._machine = ahocorasick_rs.AhoCorasick(self._literals)

    def any_in(self, text: str) -> bool:
        """Whether one of them is in a text without half characters."""
        return bool(self._machine.find_matches_as_indexes(text))

    def places(self, text: str) -> list[int]:
        """The numbers of the literals that are in the text, in order."""
        try:
            return sorted({number for number, _, _ in self._machine.find_matches_as_indexes(text, overlapping=True)})
        except UnicodeEncodeError:  # half a character, as in a file name that is not UTF-8
            return [number for number, literal in enumerate(self._literals) if literal in text]
