"""`gpudoctor list`."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import COMMANDS, completing, options
from gpudoctor.errors import UserError
from gpudoctor.model import AREAS, TAGS

if TYPE_CHECKING:
    from gpudoctor.knowledge.practices import Practice
    from gpudoctor.model import Check, Problem

    Problems = Sequence[tuple[Problem, Sequence[Check]]]

_COLUMNS = ("CHECK", "AREA", "TAGS", "LEVEL", "NEEDS", "WHAT A PASS MEANS")
_COLUMNS_OF_PROBLEMS = ("PROBLEM", "SEVERITY", "TITLE")
_COLUMNS_OF_PRACTICES = ("PRACTICE", "TITLE")
_NARROWEST = 40  # columns that the last one needs to fit on the same line
_EPILOG = """\
\b
Examples:
  gpudoctor list                  all checks
  gpudoctor list driver           the checks of an area
  gpudoctor list nccl             the checks with a tag
  gpudoctor list --problems nccl  problems with this word in id or title
  gpudoctor list --practices      what keeps a GPU busy

\b
Details: gpudoctor explain ID
"""


@click.command(
    help=COMMANDS["list"] + " Words limit the list to an area or tag, or to ids and titles that contain all of them.",
    epilog=_EPILOG,
)
@click.argument("words", nargs=-1, metavar="[AREA|TAG|WORD]…", shell_complete=completing.groups)
@click.option("--problems", is_flag=True, help="List the problems.")
@click.option("--practices", is_flag=True, help="List the practices that explain knows by name.")
@options.text_or_json
@options.own_checks
@options.output()
def command(words: tuple[str, ...], problems: bool, practices: bool, form: str | None, destination: Path | None) -> None:
    from gpudoctor.cli import output

    form = output.prepared(form, destination)
    width = shutil.get_terminal_size().columns if not destination and sys.stdout and sys.stdout.isatty() else None
    if problems and practices:
        raise click.UsageError("choose one of --problems and --practices.")
    if practices:
        rows = practices_with(words)
        text = practices_as_json(rows) if form == "json" else practices_as_text(rows, width)
    elif problems:
        found = with_words(words)
        text = problems_as_json(found) if form == "json" else problems_as_text(found, width)
    else:
        checks = in_order(matching(words))
        text = as_json(checks) if form == "json" else as_text(checks, width)
    output.deliver(text, destination)


def matching(words: Sequence[str]) -> list[Check]:
    """The checks of an area or tag, or those with all words in their id or title; UserError if there is none."""
    from gpudoctor import catalog

    found = [check for check in catalog.checks().values() if _fits(words, [check], check.id, title(check))]
    if not found:
        raise UserError(_none("check", words, catalog.checks()))
    return found


def with_words(words: Sequence[str]) -> Problems:
    """The problems of the checks of an area or tag, or those with all words in their id or title, by id; UserError if none."""
    from gpudoctor import catalog

    finders: dict[str, list[Check]] = {}
    for check in catalog.checks().values():
        for problem in catalog.found_by(check):
            finders.setdefault(problem.id, []).append(check)
    everything = sorted(catalog.problems().items())
    known = [(problem, finders.get(id, [first])) for id, (first, problem) in everything]
    found = [(problem, checks) for problem, checks in known if _fits(words, checks, problem.id, problem.title)]
    if not found:
        raise UserError(_none("problem", words, catalog.problems()))
    return found


def practices_with(words: Sequence[str]) -> list[Practice]:
    """The practices with all words in a name or the title; UserError if there is none."""
    from gpudoctor.knowledge import practices

    found = [each for each in practices.practices().values() if _fits(words, (), each.id, *each.also, each.title)]
    if not found:
        raise UserError(_none("practice", words, practices.practices()))
    return found


def _fits(words: Sequence[str], checks: Iterable[Check], *texts: str) -> bool:
    if len(words) == 1 and words[0] in (*AREAS, *TAGS):
        return any(words[0] in check.groups for check in checks)
    text = " ".join(texts).casefold()
    return all(word.casefold() in text for word in words)


def _none(what: str, words: Sequence[str], ids: Iterable[str]) -> str:
    from gpudoctor.spelling import unknown

    known = dict.fromkeys((*AREAS, *TAGS, *(word for id in ids for word in id.split("-"))))
    said = unknown("area", words[0], known) if len(words) == 1 else ""
    near = said.partition("; ")[2]
    return f"no {what} has {' '.join(words)!r} in its id or title" + (
        f"; {near}" if near else "; for problems: --problems" if what == "check" else ""
    )


def in_order(checks: Iterable[Check]) -> list[Check]:
    """By area, as in a report; inside an area in the order of judging."""
    from gpudoctor.report import words

    return [check for found in words.by_area(checks).values() for check in found]


def title(check: Check) -> str:
    return " ".join(check.explanation.split("\n\n", 1)[0].split())


def as_json(checks: Iterable[Check]) -> str:
    from gpudoctor import catalog

    return _json(
        {
            "id": check.id,
            "area": check.area,
            "tags": check.tags,
            "level": check.level,
            "needs": check.needs,
            "title": title(check),
            "problems": [problem.id for problem in catalog.found_by(check)],
        }
        for check in checks
    )


def problems_as_json(problems: Problems) -> str:
    return _json(
        {
            "id": problem.id,
            "title": problem.title,
            "status": problem.status.value,
            "action": problem.action.value,
            "checks": [check.id for check in checks],
        }
        for problem, checks in problems
    )


def practices_as_json(practices: Iterable[Practice]) -> str:
    return _json({"id": each.id, "also": each.also, "title": each.title, "problems": each.problems} for each in practices)


def _json(rows: Iterable[dict[str, Any]]) -> str:
    return json.dumps(list(rows), indent=2, ensure_ascii=False) + "\n"


def as_text(checks: Iterable[Check], width: int | None = None) -> str:
    """One line per check; if the terminal is too narrow, the last column goes on a line below."""
    return _table(
        [_COLUMNS, *((c.id, c.area, ",".join(c.tags) or "-", c.level, ",".join(c.needs) or "-", title(c)) for c in checks)], width
    )


def problems_as_text(problems: Problems, width: int | None = None) -> str:
    return _table([_COLUMNS_OF_PROBLEMS, *((p.id, p.status.value, p.title) for p, _ in problems)], width)


def practices_as_text(practices: Iterable[Practice], width: int | None = None) -> str:
    return _table([_COLUMNS_OF_PRACTICES, *((each.id, each.title) for each in practices)], width)


def _table(rows: Sequence[Sequence[str]], width: int | None) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
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
