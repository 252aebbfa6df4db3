"""Words and choices that the checks of a profile share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def is_repeated(count: int, rank: Rank) -> bool:
    """In about every step, or often if no steps are known."""
    return count >= 0.8 * rank.steps if rank.steps else count >= 10
