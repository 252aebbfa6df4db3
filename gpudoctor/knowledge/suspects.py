"""Variables, folders and limits that can break GPU programs or slow them down: `suspects.yaml`."""

from __future__ import annotations

import re
from functools import cache

from gpudoctor.knowledge.tables import Row, Table, load


class Of(Row, frozen=True, kw_only=True):
    """Something that a program inherits. name: of the variable or limit; `NCCL_*` stands for all with this prefix.

    words: a pattern of what programs print that fail because of it. slows: it can make programs slow. readers: what reads it:
    "driver", "torch", "nccl" ...; empty for every program.
    """

    name: str
    words: str = ""
    slows: bool = False
    readers: tuple[str, ...] = ()

    def explains(self, said: str) -> bool:
        return bool(self.words and re.search(self.words, said))


class Folder(Of, frozen=True, kw_only=True):
    """default: the folder used if the variable is not set; "" if there is none. $TMPDIR and $USER stand for their values.

    compiled: it keeps what programs compile, so that a program that failed can work the next time.
    """

    default: str = ""
    compiled: bool = False


class Limit(Of, frozen=True, kw_only=True):
    """enough: a soft limit of this size is no suspect."""

    enough: int


class SuspectTable(Table, frozen=True):
    variables: tuple[Of, ...]
    kept: tuple[Of, ...]
    lists: tuple[Of, ...]
    python: tuple[Of, ...]
    folders: tuple[Folder, ...]
    limits: tuple[Limit, ...]
    cores: tuple[Of, ...]


@cache
def table() -> SuspectTable:
    return load("suspects", SuspectTable)


def variable(name: str) -> Of | None:
    """The row of a variable that may be unset: its own, or that of the longest prefix. None if it is unknown, or has to stay."""
    if _row(table().kept, name):
        return None
    return _row(table().variables, name)


def _row(rows: tuple[Of, ...], name: str) -> Of | None:
    own = next((row for row in rows if row.name == name), None)
    prefixes = [row for row in rows if row.name.endswith("*") and name.startswith(row.name[:-1])]
    return own or max(prefixes, key=lambda row: len(row.name), default=None)
