"""Loads the YAML tables: rows are validated against their type, each with its sources and the day they were read."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TypeVar

import msgspec

from gpudoctor import compiled

Loaded = TypeVar("Loaded", bound="Table")


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where something was read, and when: a URL, a description, or both."""

    read: date
    url: str = ""
    what: str = ""

    def __str__(self) -> str:
        return f"{self.url} ({self.what})" if self.url and self.what else self.url or self.what


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fact: `source` are keys of its table's `sources`; `verified` is False if it was not read in its source."""

    source: tuple[str, ...]
    verified: bool
    note: str = ""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One YAML file: the sources by short key, then the rows."""

    sources: dict[str, Source]

    def rows(self) -> dict[str, tuple[Row, ...]]:
        """Name of each list of the file -> its rows."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "sources"}

    def references(self, row: Row) -> tuple[str, ...]:
        """The sources of a row of this table, as text."""
        return tuple(str(self.sources[key]) for key in row.source)

    def read(self, row: Row) -> date:
        """The day on which the newest source of a row was read."""
        return max(self.sources[key].read for key in row.source)


def load(name: str, kind: type[Loaded]) -> Loaded:
    """The table in `<name>.yaml` in this folder."""
    return msgspec.json.decode(compiled.as_json(Path(__file__).with_name(f"{name}.yaml")), type=kind)
