"""Readings of how busy a GPU was: over which time each is a mean, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

LEAST = 1e-6  # seconds


@dataclass(frozen=True)
class Reading:
    """One stretch of the timeline. covers: the seconds over which its value is a mean; 0 for a value of the moment."""

    began: float
    ended: float
    value: float
    covers: float

    def is_within(self, began: float, ended: float) -> bool:
        """Whether it covers no time outside. These are edges of stretches too: the true ones lie within a stretch."""
        margin = self.covers and self.covers + self.ended - self.began
        return self.began - margin >= began - LEAST and self.ended + margin <= ended + LEAST


def of(column: Sequence[tuple[float, float]], covers: Mapping[float, float], every: float, default: float) -> Iterator[Reading]:
    """covers: middle of a stretch -> seconds. Where two means meet, a stretch covers as much as the longer one."""
    middles = [at for at, _ in column]
    spans = [covers.get(at, default) for at in middles]
    for place, (at, value) in enumerate(column):
        near = spans[max(0, place - 1) : place + 2]
        yield Reading(at - every / 2, at + every / 2, value, max(near))


def number(readings: Iterable[Reading]) -> int:
    """How many separate ones: a mean over a second lies in several stretches of half a second."""
    return int(sum((one.ended - one.began) / one.covers if one.covers else 1.0 for one in readings) + 0.01)
