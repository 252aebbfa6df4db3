"""How far each rank has come, and where they part: one form for the flight recorder, NCCL's RAS threads and watchdogs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BEHIND, DIFFER, SHAPES, TOGETHER = "behind", "differ", "shapes", "together"


@dataclass(frozen=True)
class Parting:
    """Where the ranks of one group part.

    kind: "behind" (some did not enter an operation that others wait in), "differ" (they called different operations), "shapes"
    (the same operation with different sizes or types), "together" (all entered the same one, and it does not end).
    waiting: ranks in the operation. odd: those that differ or are behind. dead: those that NCCL calls dead or cannot reach.
    places: rank -> the line from which it called. source: where this is known from.
    """

    kind: str
    operation: str
    sequence: int = -1
    waiting: tuple[int, ...] = ()
    odd: tuple[int, ...] = ()
    odd_operation: str = ""
    group: str = ""
    places: Mapping[int, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


def apart(values: Mapping[int, Any]) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """The value that most ranks have (the lowest rank decides a tie), the ranks that have it, and the others."""
    by_value: dict[Any, list[int]] = {}
    for rank in sorted(values):
        by_value.setdefault(values[rank], []).append(rank)
    common = max(by_value, key=lambda value: len(by_value[value]))
    return common, tuple(by_value[common]), tuple(rank for rank in sorted(values) if values[rank] != common)


def by_rank(lines: Iterable[tuple[int, str]], most: int = 8) -> dict[int, str]:
    return dict(sorted(lines)[:most])


def words(ranks: Sequence[int]) -> str:
    """`rank 1`, `ranks 0 and 2`, `ranks 0-30`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    runs: list[list[int]] = []
    for number in sorted(set(ranks)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [part for run in runs for part in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(number) for number in run])]
    if len(parts) > 12:
        parts = [*parts[:12], "more"]
    return "ranks " + " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
