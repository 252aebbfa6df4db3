"""CUDA toolkits, driver branches and their compatibility: `cuda.yaml`."""

from __future__ import annotations

from functools import cache
from typing import Literal

from packaging.version import Version

from gpudoctor.knowledge.tables import Row, Table, load

Pair = tuple[int, int]
Compatibility = Literal["compatible", "same", "not provided"]


class Toolkit(Row, frozen=True):
    """One toolkit release, the driver that shipped with it, and the oldest driver by minor-version compatibility."""

    cuda: tuple[int, int, int]
    least: str
    shipped: str | None = None
    shipped_windows: str | None = None


class Floor(Row, frozen=True):
    """The oldest driver for every toolkit of one major release."""

    cuda_major: int
    least: str
    least_windows: str


class Branch(Row, frozen=True):
    """One driver branch; `ended` if the source says that it has ended, without naming the month."""

    number: int
    cuda: Pair
    ended: bool
    kind: Literal["production", "new feature", "long-term support", "developer"] | None = None
    end_of_life: str | None = None  # YYYY-MM

    def is_over(self, month: str) -> bool:
        """Whether the branch had reached its end of life in a month such as "2026-11"."""
        return self.ended or (self.end_of_life is not None and self.end_of_life < month)


class ForwardCompatibility(Row, frozen=True):
    """The driver branches on which the cuda-compat package of one CUDA release works."""

    cuda: Pair
    compatible: tuple[int, ...]
    same: int | None = None
    not_provided: tuple[int, ...] = ()


class Architecture(Row, frozen=True):
    """One compute capability: None as last CUDA or driver branch means that it is still supported."""

    compute_capability: Pair
    name: str
    first_cuda: Pair
    variant: str = ""
    last_cuda: Pair | None = None
    last_driver_branch: int | None = None


class HostCompiler(Row, frozen=True):
    """The newest major versions of gcc and clang that nvcc accepts."""

    cuda: Pair
    gcc: int
    clang: int


class CudaTable(Table, frozen=True):
    toolkits: tuple[Toolkit, ...]
    floors: tuple[Floor, ...]
    branches: tuple[Branch, ...]
    forward_compatibility: tuple[ForwardCompatibility, ...]
    architectures: tuple[Architecture, ...]
    host_compilers: tuple[HostCompiler, ...]


@cache
def table() -> CudaTable:
    return load("cuda", CudaTable)


def toolkits() -> tuple[Toolkit, ...]:
    """Every known toolkit release, newest first."""
    return table().toolkits


def minimum_driver(cuda: Pair) -> str | None:
    """The oldest Linux driver that runs programs of this CUDA release; None for an unknown release."""
    for floor in table().floors:
        if floor.cuda_major == cuda[0]:
            return floor.least
    return min((row.least for row in toolkits() if row.cuda[:2] == cuda), key=Version, default=None)


def shipped_driver(cuda: Pair) -> str | None:
    """The oldest driver that shipped with a toolkit of this release; from this driver on, PTX of the release works too."""
    shipped = (row.shipped for row in toolkits() if row.cuda[:2] == cuda and row.shipped)
    return min(shipped, key=Version, default=None)


def branch(number: int) -> Branch | None:
    return next((row for row in table().branches if row.number == number), None)


def cuda_of_branch(number: int) -> Pair | None:
    """The newest CUDA release that drivers of this branch know, as nvidia-smi prints it."""
    known = branch(number)
    if known:
        return known.cuda
    prefix = f"{number}."
    return max((row.cuda[:2] for row in toolkits() if row.shipped and row.shipped.startswith(prefix)), default=None)


def forward_compatible(compat: Pair, number: int) -> Compatibility | None:
    """Whether the cuda-compat package of a CUDA release works on a driver branch; None if the matrix does not say."""
    row = next((row for row in table().forward_compatibility if row.cuda == compat), None)
    if row is None:
        return None
    if number in row.compatible:
        return "compatible"
    if number == row.same:
        return "same"
    return "not provided" if number in row.not_provided else None


def architecture(compute_capability: Pair) -> Architecture | None:
    return next((row for row in table().architectures if row.compute_capability == compute_capability), None)


def last_branch(generation: str | None) -> int | None:
    """The last driver branch for the GPUs of a generation ("Pascal"); None if the newest still supports them."""
    rows = [row for row in table().architectures if row.name == generation and row.variant != "integrated"]
    return (
        None
        if any(row.last_driver_branch is None for row in rows)
        else max((row.last_driver_branch or 0 for row in rows), default=None)
    )


def maximum_gcc(cuda: Pair) -> int | None:
    """The newest gcc major version that nvcc of this release accepts as its host compiler."""
    row = host_compiler(cuda)
    return row.gcc if row else None


def host_compiler(cuda: Pair) -> HostCompiler | None:
    return next((row for row in table().host_compilers if row.cuda == cuda), None)
