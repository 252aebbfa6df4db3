"""The figures of one node as numbers in a row: a thousand nodes have 600,000 figures."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from gpudoctor.model import Figure


class Column(NamedTuple):
    """What a figure is about."""

    what: str
    unit: str
    gpu: int | None
    is_less_better: bool
    is_expected: bool


Columns = tuple[Column, ...]


class Figures:
    """columns: the same object for all nodes that measured the same. shares: of the expected value; not a number without one."""

    __slots__ = ("columns", "shares", "values")

    def __init__(self, columns: tuple[Any, ...] = (), values: bytes = b"", shares: bytes = b"") -> None:
        self.columns = _one_of_equal(columns)
        self.values = array("d", values)
        self.shares = array("d", shares)

    @classmethod
    def of(cls, figures: Iterable[Figure]) -> Figures:
        figures = tuple(figures)
        columns = tuple([(each.what, each.unit, each.gpu, each.less_is_better, each.expected is not None) for each in figures])
        shares = [share if (share := each.share) is not None else math.nan for each in figures]
        return cls(columns, array("d", [each.value for each in figures]).tobytes(), array("d", shares).tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return Figures, (self.columns, self.values.tobytes(), self.shares.tobytes())

    def share(self, place: int) -> float | None:
        found = self.shares[place]
        return None if math.isnan(found) else found


@lru_cache(maxsize=4096)
def _one_of_equal(columns: tuple[Any, ...]) -> Columns:
    return tuple(Column(*column) for column in columns)
