"""What differs between two profiles of a program: which part of a step got longer, and which kernels, operators and waits did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.kernel_names import short

LEAST_MS, LEAST_SHARE = 0.001, 0.01  # of a step: what changes less is noise
SLOWER = 1.03
MOST = 8
PARTS = {
    "computing_s": "computing kernels",
    "exposed_copying_s": "copies while no kernel runs",
    "exposed_communicating_s": "collectives while nothing computes",
}
GAPS = {
    "allocating": "idle while memory is allocated",
    "loading": "idle while waiting for the DataLoader",
    "compiling": "idle while compiling",
    "after_waits": "idle after waits for the GPU",
    "launching": "idle while work is launched",
    "python": "idle while the host runs Python",
}
SETTINGS = (
    "torch",
    "cuda",
    "matmul_tf32",
    "float32_matmul_precision",
    "cudnn_benchmark",
    "cudnn_tf32",
    "allocator",
    "deterministic",
)


@dataclass(frozen=True)
class Change:
    """Milliseconds of a step, or of the whole window if no steps are known. kind: part, kernel or wait."""

    kind: str
    name: str
    before: float
    after: float

    @property
    def by(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class Compared:
    """unit: what the milliseconds belong to. changes: the largest first. settings: name -> both values, if they differ."""

    unit: str
    before: float
    after: float
    changes: tuple[Change, ...]
    settings: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def is_slower(self) -> bool:
        return self.after > SLOWER * self.before

    def as_value(self) -> dict[str, Any]:
        changes = [{**asdict(change), "by": round(change.by, 6)} for change in self.changes]
        return {
            "unit": self.unit,
            "before_ms": self.before,
            "after_ms": self.after,
            "slower": self.is_slower,
            "changes": changes,
        } | {"settings": {name: list(both) for name, both in self.settings.items()}}


def compared(one: Rank, other: Rank) -> Compared:
    by_steps = bool(one.steps and other.steps)
    parts = (1000 / (one.steps if by_steps else 1), 1000 / (other.steps if by_steps else 1))
    found = [change for change in _changes(one, other, parts) if _counts(change, one.window * parts[0])]
    settings = {
        name: (one.settings.get(name), other.settings.get(name))
        for name in SETTINGS
        if one.settings.get(name) != other.settings.get(name)
    }
    kinds = ("part", "kernel", "wait")
    ordered = sorted(found, key=lambda change: (kinds.index(change.kind), -abs(change.by)))
    kept = [change for kind in kinds for change in [each for each in ordered if each.kind == kind][:MOST]]
    return Compared("step" if by_steps else "window", one.window * parts[0], other.window * parts[1], tuple(kept), settings)


def _counts(change: Change, whole: float) -> bool:
    return abs(change.by) >= max(LEAST_MS, LEAST_SHARE * whole)


def _changes(one: Rank, other: Rank, parts: tuple[float, float]) -> Iterator[Change]:
    for name, words in PARTS.items():
        yield Change("part", words, one.seconds(name) * parts[0], other.seconds(name) * parts[1])
    for name, words in GAPS.items():
        yield Change("part", words, one.gap(name) * one.window * parts[0], other.gap(name) * other.window * parts[1])
    for kind, table, key in (("kernel", "kernels", "seconds"), ("wait", "waits", "waited_s")):
        before, after = _by_name(one, table, key), _by_name(other, table, key)
        for name in {**before, **after}:
            yield Change(kind, name, before.get(name, 0.0) * parts[0], after.get(name, 0.0) * parts[1])


def _by_name(rank: Rank, table: str, key: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in rank.rows(table):
        place = row.get("line") or {}
        name = short(row["name"]) if "name" in row else f"{row['operator'] or row['call']}"
        name += f" at {place['file']}:{place['line']}" if place.get("file") else ""
        found[name] = found.get(name, 0.0) + row[key]
    return found
