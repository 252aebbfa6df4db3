"""The version of the knowledge, and the size and age of every table."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import date
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from gpudoctor.knowledge import (
    apt,
    cuda,
    distributions,
    errors,
    expectations,
    gpus,
    health,
    images,
    languages,
    library_codes,
    messages,
    nvlink5,
    performance,
    practices,
    rm,
    suspects,
    wheels,
    xids,
)
from gpudoctor.knowledge.tables import Table

if TYPE_CHECKING:
    from importlib.abc import Traversable

_READ = re.compile(rb"\bread: '?(\d{4}-\d\d-\d\d)")
TABLES = {
    "apt": apt.table,
    "cuda": cuda.table,
    "distributions": distributions.table,
    "errors": errors.table,
    "expectations": expectations.table,
    "gpus": gpus.table,
    "health": health.table,
    "images": images.table,
    "languages": languages.table,
    "library_codes": library_codes.table,
    "nvlink5": nvlink5.table,
    "performance": performance.table,
    "practices": practices.table,
    "rm": rm.table,
    "suspects": suspects.table,
    "wheels": wheels.table,
    "xids": xids.table,
}


class Count(NamedTuple):
    """One table, or the messages of one topic. oldest and newest: when its sources were read; None without sources."""

    table: str
    rows: dict[str, int]
    oldest: date | None
    newest: date | None


@cache
def version() -> str:
    """The newest day on which a source was read, and a short hash of all tables: "2026-11-21-3f2a9c1b"."""
    hashed = hashlib.sha256()
    newest = b""
    for name, text in sorted(_texts()):
        hashed.update(name.encode() + b"\0" + text)
        newest = max([newest, *_READ.findall(text)])
    return f"{newest.decode()}-{hashed.hexdigest()[:8]}"


def counts() -> list[Count]:
    """Every table, then every topic of messages."""
    found = [_of_table(name, load()) for name, load in TABLES.items()]
    return found + [_of_messages(topic, table) for topic, table in messages.tables().items()]


def _of_table(name: str, table: Table) -> Count:
    days = [source.read for source in table.sources.values()]
    return Count(name, {kind: len(rows) for kind, rows in table.rows().items()}, min(days), max(days))


def _of_messages(topic: str, table: messages.MessageTable) -> Count:
    days = [row.read for row in table.messages if isinstance(row.read, date)]
    rows = {"messages": len(table.messages), "problems": len(table.problems)}
    return Count(f"messages/{topic}", rows, min(days, default=None), max(days, default=None))


def _texts() -> Iterator[tuple[str, bytes]]:
    here = files(__package__)
    for folder, prefix in ((here, ""), (here.joinpath("messages"), "messages/")):
        yield from ((prefix + file.name, file.read_bytes()) for file in _tables(folder))


def _tables(folder: Traversable) -> Iterator[Traversable]:
    return (file for file in folder.iterdir() if file.name.endswith(".yaml"))
