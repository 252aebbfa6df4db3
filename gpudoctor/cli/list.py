"""`gpudoctor list`."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from gpudoctor.cli import COMMANDS, options

if TYPE_CHECKING:
    from gpudoctor.model import Check

_COLUMNS = ("CHECK", "AREA", "LEVEL", "NEEDS", "WHAT A PASS MEANS")
_NARROWEST = 40  # columns that the last one needs to fit on the same line


@click.command(help=COMMANDS["list"])
@options.printed_format()
def command(form: str) -> None:
    from gpudoctor import catalog
    from gpudoctor.cli import output

    checks = in_order(catalog.checks().values())
    width = shutil.get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else None
    output.show(as_json(checks) if form == "json" else as_text(checks, width))


def in_order(checks: Iterable[Check]) -> list[Check]:
    """By area, as in a report; inside an area in the order of judging."""
    from gpudoctor.report import words

    return [check for found in words.by_area(checks).values() for check in found]


def title(check: Check) -> str:
    return " ".join(check.explanation.split("\n\n", 1)[0].split())


def as_json(checks: Iterable[Check]) -> str:
    from gpudoctor import catalog

    rows = [
        {
            "id": check.id,
            "area": check.area,
            "level": check.level,
            "needs": check.needs,
            "title": title(check),
            "problems": [problem.id for problem in catalog.found_by(check)],
        }
        for check in checks
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"


def as_text(checks: Iterable[Check], width: int | None = None) -> str:
    """One line per check; if the terminal is too narrow, the last column goes on a line below."""
    rows = [_COLUMNS, *((c.id, c.area, c.level, ",".join(c.needs) or "-", title(c)) for c in checks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS) - 1)]
    return "".join(f"{line.rstrip()}\n" for row in rows for line in _lines(row, widths, width))


def _lines(row: Sequence[str], widths: Sequence[int], width: int | None) -> Iterator[str]:
    *cells, last = row
    start = "".join(f"{cell:<{size}}  " for cell, size in zip(cells, widths, strict=True))
    if width is None:
        yield start + last
    elif width - len(start) >= _NARROWEST:
        yield from textwrap.wrap(last, width, initial_indent=start, subsequent_indent=" " * len(start))
    else:
        yield start
        yield from textwrap.wrap(last, width, initial_indent="    ", subsequent_indent="    ")
