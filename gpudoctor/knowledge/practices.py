"""Practices that keep a GPU busy, by name: `practices.yaml`."""

from __future__ import annotations

from functools import cache

import msgspec

from gpudoctor.knowledge.tables import Row, Table, load


class Look(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command that shows whether the practice is needed."""

    what: str
    command: str


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something to do. code: the lines of it, in Python or for a shell."""

    what: str
    code: str = ""


class Practice(Row, frozen=True, kw_only=True):
    """also: other names. matters: when. related: other practices. example: the broken program of examples/ that shows it.
    problems: those of the catalog that it is about."""

    id: str
    title: str
    what: str
    matters: str
    see: tuple[Look, ...]
    do: tuple[Step, ...]
    example: str
    verified: bool = True
    also: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class PracticeTable(Table, frozen=True):
    practices: tuple[Practice, ...]


@cache
def table() -> PracticeTable:
    return load("practices", PracticeTable)


def practices() -> dict[str, Practice]:
    """By id, in the order of the file."""
    return {practice.id: practice for practice in table().practices}


@cache
def names() -> dict[str, Practice]:
    """Every name by which a practice is known."""
    return {name: practice for practice in table().practices for name in (practice.id, *practice.also)}
