"""Sets of moments as sorted, disjoint intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[float, float]
Intervals = list[Interval]


def union(found: Iterable[Interval]) -> Intervals:
    """
    >>> union([(5, 7), (1, 3), (2, 4)])
    [(1, 4), (5, 7)]
    """
    merged: Intervals = []
    for start, end in sorted(found):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        elif end > start:
            merged.append((start, end))
    return merged


def length(found: Iterable[Interval]) -> float:
    return sum(end - start for start, end in found)


def between(found: Sequence[Interval], start: float, end: float) -> Intervals:
    """What lies in a window.

    >>> between([(1, 4), (5, 7)], 3, 6)
    [(3, 4), (5, 6)]
    """
    return [(max(one, start), min(other, end)) for one, other in found if other > start and one < end]


def minus(found: Sequence[Interval], away: Sequence[Interval]) -> Intervals:
    """
    >>> minus([(0, 10)], [(2, 3), (5, 6)])
    [(0, 2), (3, 5), (6, 10)]
    """
    left: Intervals = []
    place = 0
    for start, end in found:
        at = start
        while place < len(away) and away[place][1] <= at:
            place += 1
        here = place
        while here < len(away) and away[here][0] < end:
            if away[here][0] > at:
                left.append((at, away[here][0]))
            at = max(at, away[here][1])
            here += 1
        if at < end:
            left.append((at, end))
    return left


def common(one: Sequence[Interval], other: Sequence[Interval]) -> Intervals:
    """
    >>> common([(0, 4), (6, 9)], [(3, 7)])
    [(3, 4), (6, 7)]
    """
    found: Intervals = []
    first = second = 0
    while first < len(one) and second < len(other):
        start, end = max(one[first][0], other[second][0]), min(one[first][1], other[second][1])
        if start < end:
            found.append((start, end))
        if one[first][1] < other[second][1]:
            first += 1
        else:
            second += 1
    return found
