"""What was seen in the course of time, in bounded memory however long it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_BINS = 240
COVERS = "covers"  # the column of a GPU with the seconds over which what GPM counted is a mean


class Mean:
    """The running mean, lowest and highest of a reading."""

    __slots__ = ("highest", "last", "lowest", "number", "total")

    def __init__(self) -> None:
        self.number, self.total = 0, 0.0
        self.lowest = self.highest = self.last = 0.0

    def add(self, value: float) -> None:
        self.lowest = min(self.lowest, value) if self.number else value
        self.highest = max(self.highest, value) if self.number else value
        self.number += 1
        self.total += value
        self.last = value

    def as_value(self) -> dict[str, float]:
        mean = self.total / self.number
        return {"mean": _short(mean), "min": _short(self.lowest), "max": _short(self.highest), "samples": self.number}


class Means(dict[str, Mean]):
    """Name -> mean."""

    def add(self, values: Mapping[str, float | None]) -> None:
        for name, value in values.items():
            if value is not None:
                if name not in self:
                    self[name] = Mean()
                self[name].add(value)

    def as_value(self) -> dict[str, dict[str, float]]:
        return {name: mean.as_value() for name, mean in self.items()}


class Timeline:
    """Columns of means over equal stretches of time. When it is full, two stretches each become one that is twice as long."""

    def __init__(self, every: float, most: int = MOST_BINS) -> None:
        self.every = every
        self._most = most
        self._bins: list[dict[str, list[float]]] = []  # name -> weighted sum and weight

    def add(self, at: float, values: Mapping[str, float | None], seconds: float = 0.0) -> None:
        """at: seconds since the beginning. seconds: the values are means over so many seconds before."""
        last = self._number(at)
        first = min(last, self._number(max(0.0, at - seconds)))
        for number in range(first, last + 1):
            began, ended = max(number * self.every, at - seconds), min((number + 1) * self.every, at)
            weight = (ended - began) / self.every if seconds else 1.0
            if weight > 0:
                _hold(self._bins[number], values, weight)

    def _number(self, at: float) -> int:
        """Of the stretch in which this lies; it is there afterwards."""
        while int(at / self.every) >= self._most:
            self._halve()
        number = max(0, int(at / self.every))
        self._bins += [{} for _ in range(number + 1 - len(self._bins))]
        return number

    def _halve(self) -> None:
        self.every *= 2
        pairs = (self._bins[at : at + 2] for at in range(0, len(self._bins), 2))
        self._bins = [_joined(*pair) for pair in pairs]

    def as_value(self) -> dict[str, Any]:
        """{"every": seconds, "columns": name -> a value or None for each stretch}."""
        names = dict.fromkeys(name for held in self._bins for name in held)
        columns = {name: [_mean(held.get(name)) for held in self._bins] for name in names}
        return {"every": self.every, "columns": columns}


def _hold(held: dict[str, list[float]], values: Mapping[str, float | None], weight: float) -> None:
    for name, value in values.items():
        if value is None:
            continue
        if name in held:
            held[name][0] += weight * value
            held[name][1] += weight
        else:
            held[name] = [weight * value, weight]


def _joined(first: dict[str, list[float]], second: dict[str, list[float]] | None = None) -> dict[str, list[float]]:
    joined = dict(first)
    for name, (total, number) in (second or {}).items():
        before = joined.get(name, (0.0, 0))
        joined[name] = [before[0] + total, before[1] + number]
    return joined


def _mean(held: list[float] | None) -> float | None:
    return _short(held[0] / held[1]) if held else None


def _short(value: float) -> float:
    """With four digits or, above 1000, without a fraction."""
    return round(value) if abs(value) >= 1000 else float(f"{value:.4g}")
