"""Return codes of NVML and CUDA: `errors.yaml`."""

from __future__ import annotations

from functools import cache

from gpudoctor.knowledge.tables import Row, Table, load


class NvmlError(Row, frozen=True):
    """`cause_verified` is False where cause and fix are experience, not read in a source."""

    code: int
    name: str
    meaning: str
    cause: str = ""
    fix: str = ""
    cause_verified: bool = True


class CudaError(Row, frozen=True):
    """`name` is the driver API's where it has one; `meaning` is empty where only a program can be wrong."""

    code: int
    name: str
    runtime: str = ""
    meaning: str = ""
    cause: str = ""
    fix: str = ""
    cause_verified: bool = True


class ErrorTable(Table, frozen=True):
    nvml: tuple[NvmlError, ...]
    cuda: tuple[CudaError, ...]


@cache
def table() -> ErrorTable:
    return load("errors", ErrorTable)


def nvml_error(code: int) -> NvmlError | None:
    return next((row for row in table().nvml if row.code == code), None)


def cuda_error(code: int) -> CudaError | None:
    return next((row for row in table().cuda if row.code == code), None)
