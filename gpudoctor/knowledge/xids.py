"""Xid and SXid codes of the kernel log: `xids.yaml`."""

from __future__ import annotations

from functools import cache
from typing import Literal

from gpudoctor.knowledge.tables import Row, Table, load

Severity = Literal["fatal", "error", "warning", "info", "unused"]


class Xid(Row, frozen=True):
    """One Xid: `action` and `investigate` are NVIDIA's tokens, `problem` the id of gpudoctor's problem, if any."""

    code: int
    name: str
    mnemonic: str
    severity: Severity
    meaning: str = ""
    cause: str = ""
    action: str = ""
    investigate: str = ""
    applies_to: str = ""
    problem: str | None = None


class SXid(Row, frozen=True):
    """One error of an NVSwitch."""

    code: int
    name: str
    fatal: Literal["always", "potentially", "other"]


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


def xid(code: int) -> Xid | None:
    return next((row for row in table().xids if row.code == code), None)


def sxid(code: int) -> SXid | None:
    return next((row for row in table().sxids if row.code == code), None)


def xid_action(token: str) -> str | None:
    """What NVIDIA's action token means, in a sentence."""
    return next((row.meaning for row in table().actions if row.token == token), None)
