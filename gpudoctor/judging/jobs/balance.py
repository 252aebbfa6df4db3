"""Whether the GPUs of one job do the same amount of work in the same time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from gpudoctor.judging.jobs.works import Work

POINTS = 0.15  # of utilisation
UNEQUAL = 0.3  # more work
LEAST_WORK = 0.05
SLOWER_CLOCK = 0.93


class Difference(NamedTuple):
    """slow: the GPU for which the others wait. usual: of the others. of_each: GPU -> reading."""

    slow: Work
    usual: float
    why: str
    is_sure: bool
    of_each: dict[str, float]


def straggler(working: Sequence[Work]) -> Difference | None:
    """The GPU that is idle most, while the kernels of the others wait for it: they do the same work, but look busier."""
    slow = max(working, key=lambda work: work.idle)
    usual = statistics.median(work.idle for work in working if work is not slow)
    if slow.idle - usual < POINTS:
        return None
    clocks = {work.gpu.index: clock for work in working if (clock := work.mean("sm_mhz"))}
    own, others = clocks.get(slow.gpu.index), [clock for index, clock in clocks.items() if index != slow.gpu.index]
    why = ""
    if own and others and own < SLOWER_CLOCK * statistics.median(others):
        why = f"; its clock is {own:.0f} MHz, theirs {statistics.median(others):.0f} MHz"
    elif slow.main_thread >= 0.85 > statistics.median(work.main_thread for work in working if work is not slow):
        why = "; a thread of the process that uses it is always busy"
    works_alike = _spread([work for work in working if work.share("tensor") is not None], "tensor") < UNEQUAL
    return Difference(slow, usual, why, bool(why) and works_alike, {work.subject: round(work.busy, 3) for work in working})


def unequal(working: Sequence[Work]) -> Difference | None:
    """By what the multiprocessors did, or by the power that was drawn where that is not counted."""
    name = next((name for name in ("tensor", "sm", "watts") if all((work.mean(name) or 0) > 0 for work in working)), None)
    if name is None:
        return None
    of_each = {work.subject: work.mean(name) or 0.0 for work in working}
    most = max(working, key=lambda work: of_each[work.subject])
    highest, least = of_each[most.subject], min(of_each.values())
    if name != "watts" and highest < 100 * LEAST_WORK:
        return None
    more = highest / least - 1
    if more < UNEQUAL:
        return None
    words = {"tensor": "time on tensor cores", "sm": "time of multiprocessors", "watts": "power"}[name]
    return Difference(most, more, words, False, {name: round(value, 1) for name, value in of_each.items()})


def _spread(working: Sequence[Work], name: str) -> float:
    values = [work.mean(name) or 0.0 for work in working]
    return max(values) / min(values) - 1 if values and min(values) > 0 else 0.0
