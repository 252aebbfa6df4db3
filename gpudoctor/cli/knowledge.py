"""`gpudoctor knowledge`."""

from __future__ import annotations

import json
import textwrap
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor.cli import COMMANDS, options

_WIDTH = 80
_DAYS = 10
_COUNTABLE = ("messages", "problems")

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpudoctor.knowledge.version import Count


@click.command(help=COMMANDS["knowledge"])
@options.text_or_json
@options.output()
def command(form: str | None, destination: Path | None) -> None:
    from gpudoctor.cli import output
    from gpudoctor.knowledge import version

    form = output.prepared(form, destination)
    number, counts = version.version(), version.counts()
    output.deliver(as_json(number, counts) if form == "json" else as_text(number, counts), destination)


def as_json(version: str, counts: Sequence[Count]) -> str:
    rows = [
        {"table": count.table, "rows": count.rows, "oldest": _day(count.oldest), "newest": _day(count.newest)} for count in counts
    ]
    return (
        json.dumps(
            {"version": version, "days_old": days_old(version, date.today()), "rows": _total(counts), "tables": rows}, indent=2
        )
        + "\n"
    )


def as_text(version: str, counts: Sequence[Count]) -> str:
    days = days_old(version, date.today())
    age = "1 day old" if days == 1 else f"{days} days old"
    lines = [f"Knowledge {version}, {age}: {_total(counts)} rows in {len(counts)} tables.", ""]
    names = max(len(count.table) for count in counts)
    lines.append(f"{'TABLE':{names}}  ROWS  {'SINCE':{_DAYS}}  WHAT")
    for count in counts:
        what = ", ".join(_counted(number, name) for name, number in count.rows.items() if number)
        before = f"{count.table:{names}}  {sum(count.rows.values()):4}  {_span(count):{_DAYS}}  "
        lines += textwrap.wrap(what, _WIDTH, initial_indent=before, subsequent_indent=" " * len(before))
    return "\n".join(lines) + "\n"


def days_old(version: str, today: date) -> int:
    return max((today - date.fromisoformat(version[:10])).days, 0)


def _counted(number: int, name: str) -> str:
    words = name.replace("_", " ")
    return f"{number} {words.removesuffix('s') if number == 1 and words in _COUNTABLE else words}"


def _span(count: Count) -> str:
    """The date of the oldest source; the newest one is in the version."""
    return _day(count.oldest) or "-"


def _total(counts: Sequence[Count]) -> int:
    return sum(sum(count.rows.values()) for count in counts)


def _day(day: object) -> str | None:
    return str(day) if day else None
