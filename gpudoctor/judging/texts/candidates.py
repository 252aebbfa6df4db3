"""The messages that can be in a text, found by their literals. Pure."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

from gpudoctor.knowledge.messages import Message, messages

if TYPE_CHECKING:
    import ahocorasick_rs

_BETWEEN = "\n\n"
_LONG = 1 << 18  # characters, from which on one search for all literals is faster than one for each


def candidates(passages: Sequence[str]) -> Iterator[tuple[Message, Sequence[int]]]:
    """Each message of which a passage has a literal, and the places of the passages where it can be; general ones come last."""
    whole = _BETWEEN.join(passages)
    if len(whole) < _LONG:
        for message, literals in _rows():
            if any(literal in whole for literal in literals):
                yield message, range(len(passages))
        return
    places = _places(whole, list(accumulate(len(passage) + len(_BETWEEN) for passage in passages)))
    for message, literals in _rows():
        if found := set().union(*(places[literal] for literal in literals if literal in places)):
            yield message, sorted(found)


def _places(whole: str, ends: Sequence[int]) -> dict[str, set[int]]:
    """Literal -> the places of the passages that have it. ends: of the passages."""
    literals, machine = _machine()
    try:
        found = machine.find_matches_as_indexes(whole, overlapping=True)
    except UnicodeEncodeError:  # half a character, as in a file name that is not UTF-8
        found = machine.find_matches_as_indexes(whole.encode("utf-8", "replace").decode(), overlapping=True)
    places: dict[str, set[int]] = {}
    for number, start, _ in found:
        places.setdefault(literals[number], set()).add(bisect(ends, start))
    return places


@cache
def _rows() -> tuple[tuple[Message, tuple[str, ...]], ...]:
    return tuple((message, message.literals) for message in sorted(messages(), key=lambda message: message.general))


@cache
def _machine() -> tuple[tuple[str, ...], ahocorasick_rs.AhoCorasick]:
    import ahocorasick_rs

    literals = tuple(dict.fromkeys(literal for _, literals in _rows() for literal in literals))
    return literals, ahocorasick_rs.AhoCorasick(literals, implementation=ahocorasick_rs.Implementation.ContiguousNFA)
