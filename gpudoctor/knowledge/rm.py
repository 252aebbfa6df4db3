"""Why the driver could not initialise a GPU: the numbers behind "RmInitAdapter failed!": `rm.yaml`."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from gpudoctor.knowledge.tables import Row, Table, load

GENERIC = 0xFFFF  # 0xffffffff of old drivers means the same


class Step(Row, frozen=True):
    """One step of the initialisation, in the driver branches from `first` to `last`."""

    code: int
    name: str
    words: str
    first: int | None = None
    last: int | None = None

    def is_of(self, branch: int | None) -> bool:
        """Whether the number means this step in a branch; for an unknown branch, in the newest one."""
        if branch is None:
            return self.last is None
        return (self.first or 0) <= branch and (self.last is None or branch <= self.last)


class DriverStatus(Row, frozen=True):
    """One NV_STATUS, with NVIDIA's text."""

    code: int
    name: str
    text: str


class Failure(Row, frozen=True):
    """A known failure. step, status and `log` (lines that the driver wrote before): all that are given must match."""

    words: str
    problem: str
    confidence: Literal["confirmed", "likely", "unknown"]
    step: int | None = None
    status: int | None = None
    last: int | None = None
    log: str = ""
    causes: tuple[str, ...] = ()
    decide: str = ""

    def fits(self, step: int, status: int, log: str, branch: int | None) -> bool:
        return (
            self.step in (None, step)
            and self.status in (None, status)
            and (self.last is None or branch is None or branch <= self.last)
            and (not self.log or re.search(self.log, log, re.IGNORECASE) is not None)
        )


class RmTable(Table, frozen=True):
    steps: tuple[Step, ...]
    statuses: tuple[DriverStatus, ...]
    failures: tuple[Failure, ...]


@cache
def table() -> RmTable:
    return load("rm", RmTable)


def rm_step(code: int, branch: int | None = None) -> Step | None:
    """The step of the first number; if the branch has no such step, the step of any branch."""
    rows = [row for row in table().steps if row.code == code]
    return next((row for row in rows if row.is_of(branch)), rows[0] if rows else None)


def rm_status(code: int) -> DriverStatus | None:
    plain = _plain(code)
    return next((row for row in table().statuses if row.code == plain), None)


def rm_failure(step: int, status: int, log: str = "", branch: int | None = None) -> Failure | None:
    """The first known failure that matches, from the most certain to the most general."""
    plain = _plain(status)
    return next((row for row in table().failures if row.fits(step, plain, log, branch)), None)


def _plain(status: int) -> int:
    return GENERIC if status == 0xFFFFFFFF else status
