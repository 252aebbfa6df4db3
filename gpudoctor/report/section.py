"""A part of a report that every format shows alike: a title, a table, lines."""

from __future__ import annotations

from dataclasses import dataclass

Row = tuple[str, ...]


@dataclass(frozen=True)
class Section:
    title: str
    head: Row
    rows: tuple[Row, ...]
    lines: tuple[str, ...] = ()
