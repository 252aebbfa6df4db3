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


def candidates(passages: Sequence[str]) -> Iterator[tuple[Message, Sequence[int]]]:
    """Each message of which a passage has a literal, and the places of the passages where it can be; general ones come last."""
    rows, of_literals, _ = _table()
    found: dict[int, set[int]] = {}
    for literal, places in _places(passages).items():
        for row in of_literals[literal]:
            found.setdefault(row, set()).update(places)
    for row in sorted(found):
        yield rows[row], sorted(found[row])


def _places(passages: Sequence[str]) -> dict[int, set[int]]:
    """The number of each literal -> the places of the passages that have it."""
    _, _, machine = _table()
    whole = _BETWEEN.join(passages)
    ends = list(accumulate(len(passage) + len(_BETWEEN) for passage in passages))
    try:
        found = machine.find_matches_as_indexes(whole, overlapping=True)
    except UnicodeEncodeError:  # half a character, as in a file name that is not UTF-8
        found = machine.find_matches_as_indexes(whole.encode("utf-8", "replace").decode(), overlapping=True)
    places: dict[int, set[int]] = {}
    for number, start, _ in found:
        places.setdefault(number, set()).add(bisect(ends, start))
    return places


@cache
def _table() -> tuple[tuple[Message, ...], tuple[tuple[int, ...], ...], ahocorasick_rs.AhoCorasick]:
    """The messages in order, the places among them of those that have each literal, and a search for all literals at once."""
    import ahocorasick_rs

    rows = tuple(sorted(messages(), key=lambda message: message.general))
    having: dict[str, list[int]] = {}
    for row, message in enumerate(rows):
        for literal in dict.fromkeys(message.literals):
            having.setdefault(literal, []).append(row)
    machine = ahocorasick_rs.AhoCorasick(tuple(having), implementation=ahocorasick_rs.Implementation.NoncontiguousNFA)
    return rows, tuple(map(tuple, having.values())), machine
