"""Finds the table row of a code; UserError, with the range and the nearest codes, if there is no such row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from gpudoctor.codes.forms import Code, Kind, in_sentence, number_alone
from gpudoctor.errors import UserError
from gpudoctor.knowledge import errors, library_codes, messages, rm, xids
from gpudoctor.knowledge.tables import Table
from gpudoctor.spelling import nearest

NAMES = {
    "xid": "Xid",
    "sxid": "SXid",
    "cuda": "CUDA error",
    "nvml": "NVML error",
    "nvidia-smi": "nvidia-smi exit code",
    "nccl": "NCCL result",
    "cudnn": "cuDNN status",
    "cublas": "cuBLAS status",
    "exit": "exit code",
    "cupti": "CUPTI result",
    "nvperf": "NVPW status",
    "cusolver": "cuSOLVER status",
    "cusparse": "cuSPARSE status",
    "cufft": "cuFFT result",
    "curand": "cuRAND status",
    "npp": "NPP status",
    "nvjpeg": "nvJPEG status",
    "nvenc": "NVENC status",
    "nvrtc": "NVRTC result",
    "nvjitlink": "nvJitLink result",
    "optix": "OptiX result",
}
LIBRARIES = library_codes.LibraryTable.__struct_fields__
SPOKEN: tuple[Kind, ...] = ("xid", "cuda", "nvml", "nvidia-smi", "nccl", "sxid", "exit")
NEAREST = 2
Named = TypeVar("Named")


class Coded(Protocol):
    """A row with a number."""

    @property
    def code(self) -> int: ...


Numbered = TypeVar("Numbered", bound=Coded)


def title(code: Code, row: errors.Error) -> str:
    """ "CUDA error 802: CUDA_ERROR_SYSTEM_NOT_READY, cudaErrorSystemNotReady"."""
    runtime = f", {row.runtime}" if isinstance(row, errors.CudaError) and row.runtime else ""
    old = f" ({row.old_code} before cuDNN 9)" if isinstance(row, errors.CudnnStatus) and row.old_code else ""
    return f"{NAMES[code.kind]} {row.code}{old}: {row.name}{runtime}"


def shown(code: Code) -> str:
    """The form that a user types: "CUDA error 802"."""
    return f"{NAMES[code.kind]} {code.number}"


def of_number(text: str) -> list[Code]:
    """The known codes of any kind with this number; empty if the text is not a bare number."""
    number = number_alone(text)
    codes = () if number is None else (Code(kind, number) for kind in SPOKEN)
    return [code for code in codes if _is_known(code)]


def mentioned(text: str) -> list[Code]:
    """The known codes that a sentence contains."""
    return [code for code in in_sentence(text) if _is_known(code)]


def _is_known(code: Code) -> bool:
    try:
        if code.kind == "status":
            return bool(status(code))
        if code.kind in ("xid", "sxid"):
            return any(row.code == code.number for row in getattr(xids.table(), f"{code.kind}s"))
        return bool(error(code))
    except UserError:
        return False


def error(code: Code) -> errors.Error:
    rows = _rows(code)
    if code.number is None:
        return _named(NAMES[code.kind], {name: row for row in rows for name in _names(row)}, code.name)
    if code.kind == "cudnn":  # releases before 9 counted from 1 to 14
        old = [row for row in errors.table().cudnn if row.old_code == code.number]
        if old:
            return old[0]
    return numbered(NAMES[code.kind], rows, code)


def table_of(code: Code) -> Table:
    return library_codes.table() if code.kind in LIBRARIES else errors.table()


def diagnosed(row: errors.Error) -> errors.Error:
    """A row that only names its code, with what the message of that name means."""
    message = None if row.meaning else next((known for known in messages.messages() if known.regex.search(row.name)), None)
    if message is None or "{" in message.words:
        return row
    return msgspec.structs.replace(row, meaning=f"{message.words[0].upper()}{message.words[1:]}.", problem=message.problem)


def status(code: Code) -> rm.DriverStatus:
    rows = rm.table().statuses
    if code.number is None:
        return _named("driver status", {row.name: row for row in rows}, code.name)
    return numbered("driver status", rows, code, "0x{:x}")


def steps(code: Code) -> list[rm.Step]:
    """The rows of a step; several if its number moved between driver branches."""
    numbered("RmInitAdapter step", rm.table().steps, code, "0x{:x}")
    return [row for row in rm.table().steps if row.code == code.number]


def numbered(name: str, rows: Sequence[Numbered], code: Code, form: str = "{}") -> Numbered:
    number = code.number or 0
    found = next((row for row in rows if row.code == number), None)
    if found is not None:
        return found
    codes = sorted({row.code for row in rows})
    near = sorted(sorted(codes, key=lambda known: abs(known - number))[:NEAREST])
    nearest, first, last = " and ".join(map(form.format, near)), form.format(codes[0]), form.format(codes[-1])
    raise UserError(f"{name} {form.format(number)} is not in the tables (they cover {first} to {last}; nearest: {nearest})")


def _rows(code: Code) -> Sequence[errors.Error]:
    if code.kind in LIBRARIES:
        rows: tuple[errors.Error, ...] = getattr(library_codes.table(), code.kind)
        return rows
    table = errors.table()
    return {
        "cuda": table.cuda,
        "nvml": table.nvml,
        "nvidia-smi": table.smi,
        "nccl": table.nccl,
        "cudnn": table.cudnn,
        "cublas": table.cublas,
        "exit": table.exits,
    }[code.kind]


def _names(row: errors.Error) -> Iterable[str]:
    yield row.name
    if isinstance(row, errors.CudaError) and row.runtime:
        yield row.runtime


def _named(kind: str, rows: dict[str, Named], name: str) -> Named:
    """The row with this name, case-insensitive; UserError with similar names if it does not exist."""
    found = next((row for known, row in rows.items() if known.lower() == name.lower()), None)
    if found is not None:
        return found
    near = nearest(name, rows)
    raise UserError(f"unknown {kind}: {name}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
