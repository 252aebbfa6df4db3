"""Memory that keeps growing: a straight line through the readings."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from gpudoctor.facts.guarded import guarded

LEAST_POINTS = 8
FITS = 0.85  # of the variance is explained by the line
STEADY = 0.15  # of the whole growth lies in each third


class Growth(NamedTuple):
    """Of one memory: MiB per minute, all that it grew, over so many seconds."""

    per_minute: float
    grown: float
    seconds: float


@guarded
def growth(readings: Sequence[tuple[float, float]], least_mib: float) -> Growth | None:
    """None if it does not grow steadily by at least so much. readings: seconds and MiB."""
    if len(readings) < LEAST_POINTS:
        return None
    times, values = zip(*readings, strict=True)
    if min(values) == max(values):
        return None
    slope, _ = statistics.linear_regression(times, values)
    seconds, grown = times[-1] - times[0], values[-1] - values[0]
    marks = [values[(len(values) - 1) * part // 3] for part in range(4)]
    least = min(after - before for before, after in pairwise(marks))
    fits = statistics.correlation(times, values) ** 2 >= FITS
    if slope <= 0 or grown < least_mib or not fits or least < STEADY * grown:
        return None
    return Growth(slope * 60, grown, seconds)
