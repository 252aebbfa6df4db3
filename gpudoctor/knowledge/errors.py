"""Codes that people quote: NVML, CUDA, nvidia-smi, NCCL, cuDNN, cuBLAS, exit codes of containers: `errors.yaml`."""

from __future__ import annotations

from functools import cache

from gpudoctor.knowledge.tables import Row, Table, load


class Error(Row, frozen=True):
    """One code. text: the library's message for it, verbatim.

    meaning, cause and fix are given if a machine or an environment can be the cause; `cause_verified` is False if cause and fix
    come from experience. problem: the usual problem; causes: other problems with this code, in the order in which to rule them
    out; decide: the command that distinguishes them.
    """

    code: int
    name: str
    text: str = ""
    meaning: str = ""
    cause: str = ""
    fix: str = ""
    cause_verified: bool = True
    problem: str | None = None
    causes: tuple[str, ...] = ()
    decide: str = ""


class CudaError(Error, frozen=True):
    """`name` is the driver API's name if it has one, else the runtime's."""

    runtime: str = ""


class CudnnStatus(Error, frozen=True):
    """`old_code` is the number before cuDNN 9."""

    old_code: int | None = None


class ErrorTable(Table, frozen=True):
    nvml: tuple[Error, ...]
    cuda: tuple[CudaError, ...]
    smi: tuple[Error, ...]
    nccl: tuple[Error, ...]
    cudnn: tuple[CudnnStatus, ...]
    cublas: tuple[Error, ...]
    exits: tuple[Error, ...]


@cache
def table() -> ErrorTable:
    return load("errors", ErrorTable)


def nvml_error(code: int) -> Error | None:
    return next((row for row in table().nvml if row.code == code), None)


def cuda_error(code: int) -> CudaError | None:
    return next((row for row in table().cuda if row.code == code), None)
