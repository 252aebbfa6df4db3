"""The steps of a program: how long each lasted, which lasted longer, and in how many of them something happened."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from gpudoctor.jobs.tracing import host as hosts
from gpudoctor.jobs.tracing import intervals as spans
from gpudoctor.jobs.tracing.intervals import Intervals
from gpudoctor.jobs.tracing.rows import Rows
from gpudoctor.worker.tracing.stepping import LATE, LATE_SECONDS

LEAST_OUTSIDE = 5
MOST_LINES = 4


def steps(about: Mapping[str, Any]) -> dict[str, Any]:
    """Milliseconds of each step in the window, and of those before and after it, which no profiler slowed down.

    on: by which clock. The host's is wrong if it is ahead of the GPU; it counts only for a program without a GPU.
    """
    times, began, ended = about.get("steps_ns") or [], about.get("began_steps") or 0, about.get("ended_steps") or 0
    if not began or ended <= began:
        return {}
    of_gpu = {int(step): float(ms) for step, ms in (about.get("steps_gpu_ms") or {}).items()}
    of_host = {step: (times[step] - times[step - 1]) / 1e6 for step in range(1, len(times))}
    first = (times[began] - about["began_ns"]) / 1e6
    # the start of the profiler falls into the first step of the window, its end into the first one after it
    inside = _some(of_gpu or of_host, began + 1, ended) or [first]
    quiet = about.get("after_steps") or ended
    after, before = _some(of_gpu or of_host, quiet + 1, len(times)), _some(of_gpu or of_host, 1, began)
    found: dict[str, Any] = {"count": ended - began, "ms": [round(one, 4) for one in inside[:1000]]}
    found |= {"median_ms": round(statistics.median(inside), 4), "on": "gpu" if of_gpu else "host"}
    if outside := after if len(after) >= LEAST_OUTSIDE else before[-LEAST_OUTSIDE:]:
        found |= {"outside_median_ms": round(statistics.median(outside), 4), "outside_count": len(outside)}
    return found


def _some(each: Mapping[int, float], start: int, end: int) -> list[float]:
    return [each[step] for step in range(start, end) if step in each]


def ends(rows: Rows, about: Mapping[str, Any]) -> list[float]:
    """When the steps of the window ended on the host, the one before it first; in the time of the rows."""
    times, began, ended = about.get("steps_ns") or [], about.get("began_steps") or 0, about.get("ended_steps") or 0
    return [(at - rows.base_ns) / 1000 for at in times[began - 1 : ended]] if began and ended > began else []


def spread(starts: Iterable[float], ends: Sequence[float]) -> dict[str, int]:
    """{"in_steps": in how many of the steps something happened}; {} without steps."""
    return {"in_steps": len({bisect_right(ends, start) for start in starts})} if ends else {}


def late(rows: Rows, about: Mapping[str, Any], ends: Sequence[float], idle: Intervals) -> dict[str, Any]:
    """{"late": {"count", "longest_ms", "median_ms", "idle_s", "lines"}} of the steps that lasted much longer on the host.

    The first step of a window has the start of the profiler in it, and does not count. idle: when no kernel ran.
    """
    each = list(pairwise(ends))[1:]
    if len(each) < LEAST_OUTSIDE:
        return {}
    usual = statistics.median(end - start for start, end in each)
    long = [(start, end) for start, end in each if end - start >= max(LATE * usual, usual + LATE_SECONDS * 1e6)]
    if not long or 2 * len(long) >= len(each):
        return {}
    samples = hosts.Samples(about.get("late") or {}, rows.base_ns)
    return {
        "late": {
            "count": len(long),
            "longest_ms": round(max(end - start for start, end in long) / 1000, 4),
            "median_ms": round(usual / 1000, 4),
            "idle_s": round(spans.length(spans.common(idle, long)) / 1e6, 9),
            "lines": hosts.lines(samples, (), MOST_LINES),
        }
    }
