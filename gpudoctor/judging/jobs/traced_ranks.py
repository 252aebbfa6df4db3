"""Words and choices that the checks of a profile share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank

Measure = Callable[[Rank], float]


def worst(facts: Facts, measure: Measure) -> tuple[Rank, float]:
    """The rank in which the most time is lost, and how much: a share of its window. Skip if no GPU was profiled."""
    return max(((rank, measure(rank)) for rank in facts.job.traced.ranks), key=lambda found: found[1])


def where(rank: Rank) -> str:
    """ " in rank 3", or nothing for a program that is a single process."""
    return "" if rank.number is None else f" in rank {rank.number}"


def percent(share: float) -> str:
    """
    >>> percent(0.004), percent(0.0449), percent(0.6)
    ('0.4 %', '4.5 %', '60 %')
    """
    return f"{share:.1%}".replace("%", " %") if share < 0.095 else f"{share:.0%}".replace("%", " %")


def evidence(rank: Rank, lost: float, **more: Any) -> dict[str, Any]:
    """With the share of the time that a fix can give back at most."""
    found: dict[str, Any] = {} if rank.number is None else {"rank": rank.number}
    found["time_given_back_percent"] = round(100 * lost, 1)
    found["window_seconds"] = round(rank.window, 4)
    if rank.steps:
        found["steps"] = rank.steps
    return {**found, **{name: value for name, value in more.items() if value not in (None, "", [], {})}}


def line(row: Mapping[str, Any]) -> str:
    """`train.py:12`, or "" if the line is not known."""
    found = row.get("line") or {}
    return f"{found['file']}:{found['line']}" if found.get("file") else ""


def at(place: str) -> str:
    return f" at {place}" if place else ""


def per_step(count: int, rank: Rank) -> str:
    """How often something happened: in a step, else in all."""
    if not rank.steps:
        return f"{count} times in {rank.window:.1f} s"
    return f"{count / rank.steps:.0f} times in each step" if count / rank.steps >= 1.5 else "in each step"


CUDNN_SEARCH = "cudnn-benchmark-with-changing-shapes"
"""It works on the host and allocates, and explains both."""
MOST_OF_A_LAUNCH_US = 50.0  # of the host, with the profiler: what takes longer is other work
LEAST_AHEAD = 20  # kernels between two waits, for the host to get ahead of the GPU


def between_launches(rank: Rank) -> float:
    """The share of the time in which the GPU has nothing to do while the host launches work or runs other code.

    Without the steps that last much longer, which profiled-late-steps judges.
    """
    return max(0.0, rank.gap("launching") + rank.gap("python") - in_late_steps(rank)) * rank.distortion


def in_late_steps(rank: Rank) -> float:
    """The share of the time in which no kernel runs in the steps that last much longer than the others."""
    return rank.of_window(float(rank.late.get("idle_s") or 0.0))


def is_launching(rank: Rank) -> bool:
    """Whether that is short enough for each launch to be the launch itself."""
    return between_launches(rank) * rank.window * 1e6 <= MOST_OF_A_LAUNCH_US * (rank.count("launches") + _copies(rank))


def _copies(rank: Rank) -> int:
    return sum(row["count"] for row in rank.rows("copies"))


def waits(rank: Rank) -> list[Mapping[str, Any]]:
    """The waits for the GPU that are repeated, without those for copies to the GPU."""
    return [row for row in rank.rows("waits") if is_repeated(times(row), rank) and "HtoD" not in (row.get("copied") or "")]


def waits_for_pageable(rank: Rank) -> list[Mapping[str, Any]]:
    """The waits for copies of pageable memory to the GPU."""
    return [row for row in rank.rows("waits") if "HtoD (Pageable" in (row.get("copied") or "")]


def never_gets_ahead(rank: Rank, found: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the program waits so often, in the waits that were found, that each launch comes too late."""
    return is_launching(rank) and sum(row["count"] for row in found) * LEAST_AHEAD >= rank.kernel_count + _copies(rank)


def times(row: Mapping[str, Any]) -> int:
    """In how many steps something happened, or how often if that is not known: 700 times in one step is not repeated."""
    return int(row.get("in_steps") or row["count"])


def is_repeated(count: int, rank: Rank) -> bool:
    """In about every step, or often if no steps are known."""
    return count >= 0.8 * rank.steps if rank.steps else count >= 10
