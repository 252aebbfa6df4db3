"""Xid and SXid codes of the kernel log: `xids.yaml`."""

from __future__ import annotations

from functools import cache
from typing import Literal

from gpudoctor.knowledge.tables import Row, Table, load
from gpudoctor.model import Action

Severity = Literal["fatal", "error", "warning", "info", "unused"]


class Xid(Row, frozen=True):
    """One Xid: `action` and `investigate` are NVIDIA's tokens, `problem` the id of gpudoctor's problem, if any.

    ours: what gpudoctor says to do; why: where that is not simply NVIDIA's action. again: what to do where the same GPU reported
    it in an earlier boot too. follows: an echo of the Xid that came before it on that GPU.
    """

    code: int
    name: str
    mnemonic: str
    severity: Severity
    ours: Action
    meaning: str = ""
    cause: str = ""
    action: str = ""
    investigate: str = ""
    why: str = ""
    again: Action | None = None
    follows: Literal["", "unless alone", "always"] = ""
    applies_to: str = ""
    problem: str | None = None


class SXid(Row, frozen=True):
    """One error of an NVSwitch. fatal: what it can stop; unknown where only the line in the log says."""

    code: int
    name: str
    fatal: Literal["always", "potentially", "other", "unknown"]
    mnemonic: str = ""

    @property
    def is_risky(self) -> bool:
        """Whether it can stop a link or the switch, even where this time it did not."""
        return self.fatal in ("always", "potentially")


class ActionToken(Row, frozen=True):
    """What one of NVIDIA's action tokens asks for."""

    token: str
    meaning: str


class XidTable(Table, frozen=True):
    actions: tuple[ActionToken, ...]
    xids: tuple[Xid, ...]
    sxids: tuple[SXid, ...]


@cache
def table() -> XidTable:
    return load("xids", XidTable)


@cache
def _by_code() -> dict[int, Xid]:
    return {row.code: row for row in table().xids}


def xid(code: int) -> Xid | None:
    return _by_code().get(code)


def breaking_problems() -> tuple[str, ...]:
    """Of the Xids after which a GPU does no more work."""
    return tuple(row.problem for row in table().xids if row.severity == "fatal" and row.problem)


def sxid(code: int) -> SXid | None:
    return next((row for row in table().sxids if row.code == code), None)


def xid_action(token: str) -> str | None:
    """What NVIDIA's action token means, in a sentence."""
    return next((row.meaning for row in table().actions if row.token == token), None)
