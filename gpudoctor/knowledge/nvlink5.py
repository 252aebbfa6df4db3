"""NVIDIA's table of the errors of NVLink 5: `nvlink5.yaml`."""

from __future__ import annotations

from functools import cache

from gpudoctor.knowledge.tables import Row, Table, load


class LinkError(Row, frozen=True):
    """An Xid 144 to 150 by its unit, sub-code and error status. action and investigate are tokens of xids.yaml."""

    code: int
    unit: str
    subcode: int
    status: int
    action: str
    investigate: str


class LinkErrorTable(Table, frozen=True):
    errors: tuple[LinkError, ...]


@cache
def table() -> LinkErrorTable:
    return load("nvlink5", LinkErrorTable)


def nvlink5_error(code: int, unit: str, subcode: int, status: int) -> LinkError | None:
    wanted = code, unit, subcode, status
    return next((row for row in table().errors if (row.code, row.unit, row.subcode, row.status) == wanted), None)
