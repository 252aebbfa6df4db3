"""What healthy GPUs and links reach: `performance.yaml`."""

from __future__ import annotations

from functools import cache

from gpudoctor.knowledge.gpus import Gpu
from gpudoctor.knowledge.tables import Row, Table, load


class Reachable(Row, frozen=True):
    """Share of a datasheet's figure that a healthy GPU reaches in the measurements; `of` is a GPU, an architecture or "any"."""

    quantity: str
    of: str
    share: float


class Pcie(Row, frozen=True):
    """`reachable` is the share of a link's rate that copies of page-locked memory reach."""

    generation: int
    reachable: float


class Nvlink(Row, frozen=True):
    """The shares of a link's rate that a copy between two GPUs and an all-reduce reach."""

    version: int
    reachable: float
    all_reduce: float


class Collective(Row, frozen=True):
    """The share of an all-reduce's bus bandwidth that this collective reaches over the same links."""

    operation: str
    share: float


class Rates(Row, frozen=True):
    """Dense floating point operations per clock and SM, by dtype."""

    compute_capability: tuple[int, int]
    flop: dict[str, int]


class PerformanceTable(Table, frozen=True):
    reachable: tuple[Reachable, ...]
    pcie: tuple[Pcie, ...]
    nvlink: tuple[Nvlink, ...]
    collectives: tuple[Collective, ...]
    rates: tuple[Rates, ...]


@cache
def table() -> PerformanceTable:
    return load("performance", PerformanceTable)


def reachable_share(quantity: str, board: Gpu | None, architecture: str | None) -> float | None:
    """The share of its datasheet that a healthy GPU reaches, from the most specific row; None for an unknown quantity."""
    shares = _shares(quantity)
    names = (board.name if board else None, board.architecture if board else architecture, "any")
    return next((shares[name] for name in names if name in shares), None)


@cache
def _shares(quantity: str) -> dict[str, float]:
    return {row.of: row.share for row in table().reachable if row.quantity == quantity}


def pcie_share(generation: int) -> float | None:
    return next((row.reachable for row in table().pcie if row.generation == generation), None)


def nvlink_shares(version: int) -> tuple[float, float] | None:
    """The shares for a copy between two GPUs and for an all-reduce."""
    return next(((row.reachable, row.all_reduce) for row in table().nvlink if row.version == version), None)


def collective_share(operation: str) -> float | None:
    return next((row.share for row in table().collectives if row.operation == operation), None)


def operations_per_clock(compute_capability: tuple[int, int]) -> dict[str, int]:
    """Dtype -> dense operations per clock and SM; empty for an unknown compute capability."""
    return next((row.flop for row in table().rates if row.compute_capability == compute_capability), {})
