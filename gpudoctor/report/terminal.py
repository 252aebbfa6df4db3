"""The report for a person at a terminal: areas in a line each, then what is wrong and the lines to paste."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from gpudoctor.model import Report, Result, Status
from gpudoctor.report import figures, heading, words
from gpudoctor.report.diagnosis import diagnosis
from gpudoctor.report.layout import COLOURS, Lines, Page, cut, signed

_DETAIL = " " * 4
_LISTED = 3  # names of blocked checks in an area's line; -v shows all
_STATUS, _AREA = 10, 22  # where the columns of an area's line end
_MODELS = "Least time per token that the measured memory bandwidth allows, one answer at a time:"
_UNHEALTHY = (Status.FAIL, Status.ERROR, Status.WARN)


def look() -> tuple[int, bool]:
    """Width of the terminal and whether it shows colours: not in a pipe or under NO_COLOR (https://no-color.org)."""
    console = Console()
    return console.width, console.color_system is not None and not os.environ.get("NO_COLOR")


def render(report: Report, width: int = 80, colours: bool = False, verbose: bool = False) -> str:
    """`verbose` shows every check and all of the evidence."""
    page = Page.fitting(width, verbose)
    return page.printed(_lines(page, report), colours)


def _lines(page: Page, report: Report) -> Lines:
    yield from page.paragraph(f"gpudoctor {heading.version(report)} on {heading.system(report)}", rest="  ")
    yield from page.paragraph(heading.container(report), "Image   ", " " * 8)
    yield from page.paragraph(heading.gpus(report), "GPU     ", " " * 8)
    if report.target.get("kind") != "host":
        yield from page.paragraph(f"{heading.python(report)} (another: --python PATH)", "Python  ", " " * 8)
    for text in report.evidence:
        yield from page.paragraph(heading.evidence(text), "Log     ", " " * 8)
    yield Text()
    telling = figures.telling(report)
    for area, results in words.areas(report).items():
        yield from _area(page, area, sorted(results, key=lambda result: result.id not in telling))
    yield from _comparison(page, report)
    yield Text()
    yield from diagnosis(page, report)
    yield from _measured(page, report)
    yield Text()
    yield from page.paragraph(report.coverage.sentence)


def _comparison(page: Page, report: Report) -> Lines:
    """What the host and the container see that is not the same; all of it if everything was asked for."""
    rows = [(row.what, row.host, row.container) for row in report.comparison if row.differs or page.verbose or row.what == "GPUs"]
    if rows:
        yield Text()
        first, *rest = figures.columns([("", "Host", "Container"), *rows])
        yield Text(first, "bold")
        yield from map(Text, rest)


def _measured(page: Page, report: Report) -> Lines:
    """The numbers that something is expected of, or all; then what they mean for language models."""
    rows = figures.rows(report, all=page.verbose)
    if rows:
        yield Text()
        first, *rest = figures.columns([figures.HEADINGS, *rows])
        yield Text(first, "bold")
        yield from map(Text, rest)
        took = f"Measured in {report.measured.seconds:.1f} s. Healthy is what such a GPU or link usually reaches."
        yield from page.paragraph(took)
        yield from page.paragraph(figures.judged_by_itself(report))
    for title, matrix in figures.matrices(report) if page.verbose else ():
        yield Text()
        yield Text(title, "bold")
        yield from map(Text, figures.columns(matrix))
    for why in report.measured.left_alone:
        yield from page.paragraph(why, "Not measured: ", "  ")
    models = list(figures.models(report))
    if models:
        yield Text()
        yield from page.paragraph(_MODELS)
        first, *rest = figures.columns([figures.model_headings(report), *models])
        yield Text(first, "bold")
        yield from map(Text, rest)


def _area(page: Page, name: str, results: Sequence[Result]) -> Lines:
    status = words.worst(results)
    start = f"{words.label(status):<{_STATUS}} {name:<{_AREA - _STATUS - 2}} "
    first, *rest = page.paragraph(_summary(page, status, results) or "-", start, " " * _AREA)
    first.stylize(COLOURS[status], 0, _STATUS)
    yield from (first, *rest)
    yield from _every_check(page, results) if page.verbose else _details(page, results)


def _summary(page: Page, status: Status, results: Sequence[Result]) -> str:
    if words.does_not_apply(results):
        return "does not apply here"
    if status in (Status.PASS, Status.SKIP):
        shown = [result.message for result in results if result.status is status]
        skipped = f" ({len(results) - len(shown)} skipped)" if len(results) > len(shown) else ""
        return _short(dict.fromkeys(shown), page.width - _AREA - len(skipped)) + skipped
    if _only_blocked(results):
        return "; ".join(_waiting(results))
    return words.counts(results)


def _only_blocked(results: Iterable[Result]) -> bool:
    return {result.status for result in results} <= {Status.BLOCKED, Status.SKIP}


def _short(messages: Iterable[str], room: int) -> str:
    """As many messages as fit, and how many more there are."""
    messages = [" ".join(message.split()) for message in messages if message]
    for number in range(len(messages), 0, -1):
        more = f"; {len(messages) - number} more" if number < len(messages) else ""
        said = "; ".join(messages[:number]) + more
        if len(said) <= room:
            return said
    return cut(messages[0], room) if messages else ""


def _details(page: Page, results: Sequence[Result]) -> Lines:
    for result in results:
        if result.status in _UNHEALTHY:
            start = f"{_DETAIL}{words.SIGNS[result.status]} {result.id}: "
            # The diagnosis says all of a finding; of our own bug this is the only place.
            wrap = page.wrap if result.status is Status.ERROR else page.short
            yield from signed(result.status, wrap(result.message, start, _DETAIL * 2))
    for waiting in [] if _only_blocked(results) else _waiting(results):
        yield from page.paragraph(f"blocked {waiting}", f"{_DETAIL}{words.SIGNS[Status.BLOCKED]} ", _DETAIL * 2)


def _waiting(results: Iterable[Result]) -> list[str]:
    return [f"by {blocker}: {words.listed(waiting, _LISTED)}" for blocker, waiting in words.blocked(results).items()]


def _every_check(page: Page, results: Sequence[Result]) -> Lines:
    longest = max(len(result.id) for result in results)
    timed = any(result.seconds for result in results)
    for result in results:
        seconds = (f"{result.seconds:6.2f} s  " if result.seconds else " " * 10) if timed else ""
        start = f"{_DETAIL}{words.label(result.status):<{_STATUS}} {result.id:<{longest}}  {seconds}"
        yield from signed(result.status, page.wrap(_said(result), start, _DETAIL * 4))


def _said(result: Result) -> str:
    if result.status is Status.BLOCKED:
        return f"by {result.blocked_by}"
    if result.status is Status.SKIP and result.reason and result.reason not in result.message:
        return f"{result.reason}: {result.message}"
    return result.message
