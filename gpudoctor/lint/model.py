"""A rule, and what it found in a file."""

from __future__ import annotations

from dataclasses import dataclass

STATUSES = ("fail", "warn", "info")  # worst first; info never decides the exit code


@dataclass(frozen=True)
class Rule:
    """One fault that a file can have, named after what is wrong; `write` is what to use instead."""

    id: str
    title: str
    why: str
    write: str
    references: tuple[str, ...]
    status: str = "warn"

    def at(self, line: int, message: str, write: str = "", status: str = "") -> Fault:
        return Fault(self, line, message, write or self.write, status or self.status)


@dataclass(frozen=True)
class Fault:
    """A rule broken in one line; `message` shows what is there."""

    rule: Rule
    line: int
    message: str
    write: str
    status: str
