"""The report for a person at a terminal: versions, what is wrong and how to fix it, measurements, the state of each area."""

from __future__ import annotations

import os

from rich.console import Console
from rich.text import Text

from gpudoctor.model import Report
from gpudoctor.report import areas, figures, findings, heading, profiled, watched, without_gpu
from gpudoctor.report.diagnosis import diagnosis
from gpudoctor.report.layout import Lines, Page

_MARGIN = " " * 8


def look(is_beside: bool = False) -> tuple[int, bool]:
    """Width of the terminal and whether it shows colours: not in a pipe or under NO_COLOR (https://no-color.org).

    is_beside: that of standard error.
    """
    console = Console(stderr=is_beside)
    return console.width, console.color_system is not None and not os.environ.get("NO_COLOR")


def render(report: Report, width: int = 80, colours: bool = False, verbose: bool = False) -> str:
    """verbose: show every check, fix and value; else each problem has one command."""
    page = Page.fitting(width, verbose)
    return page.printed(_lines(page, report), colours)


def _lines(page: Page, report: Report) -> Lines:
    yield from _heading(page, report)
    yield Text()
    if not page.verbose and without_gpu.is_all(report):
        yield from without_gpu.lines(page, report)
        yield from _profiled(page, report)
        yield from _not_counted(page, report)
        return
    yield from diagnosis(page, report, brief=not page.verbose)
    yield from _not_counted(page, report)
    yield from _comparison(page, report)
    yield from _profiled(page, report)
    yield from _watched(page, report)
    yield from _measured(page, report)
    yield Text()
    yield from areas.in_full(page, report) if page.verbose else areas.in_short(page, report, without_gpu.is_missing(report))
    yield from page.paragraph(report.coverage.sentence + ("" if page.verbose else _more(report)))


def _more(report: Report) -> str:
    return " -v shows all fixes, evidence and checks." if report.diagnosis else " -v shows every check."


def _heading(page: Page, report: Report) -> Lines:
    version = heading.version(report) if page.verbose else report.version
    if heading.is_of_job(report):
        yield from page.paragraph(f"gpudoctor {version}")
    else:
        yield from _machine(page, report, version)
    if found := watched.of(report):
        yield from page.paragraph(watched.heading(found), "Watched ", _MARGIN)


def _watched(page: Page, report: Report) -> Lines:
    """A row and a line of verdict for each GPU that was watched."""
    found = watched.of(report)
    if not found or not found["gpus"]:
        return
    yield Text()
    first, *rest = figures.columns([watched.HEAD, *watched.rows(found)])
    yield Text(first, "bold")
    yield from map(Text, rest)
    for line in watched.verdicts(report, found):
        yield from page.paragraph(line, rest="  ")


def _machine(page: Page, report: Report, version: str) -> Lines:
    yield from page.paragraph(f"gpudoctor {version} on {heading.system(report)}", rest="  ")
    label = {"Image": "Image", "Container": "Inside"}[heading.container_label(report)]
    yield from page.paragraph(heading.container(report), f"{label:<{len(_MARGIN)}}", _MARGIN)
    yield from page.paragraph(heading.gpus_and_cuda(report), "GPU     ", _MARGIN)
    if report.target.get("kind") != "host":
        yield from page.paragraph(heading.python(report), "Python  ", _MARGIN)
        yield from page.paragraph(heading.own_python(report), _MARGIN, _MARGIN)
        yield from _unusable(page, report)
    yield from page.paragraph(heading.software(report), "Stack   ", _MARGIN)
    for text in report.evidence:
        yield from page.paragraph(heading.evidence(text), "Log     ", _MARGIN)


def _unusable(page: Page, report: Report) -> Lines:
    """Why a Python that comes first could not be examined."""
    for name, why in report.target.get("python_unusable", {}).items() if page.verbose else ():
        yield from page.paragraph(f"{name}: {why}", _MARGIN, _MARGIN + "  ")


def _baseline(number: int) -> str:
    figures = "1 figure was" if number == 1 else f"{number} figures were"
    return f" {figures} also compared with the saved baseline (gpudoctor baseline show)." if number else ""


def _not_counted(page: Page, report: Report) -> Lines:
    lines = [*findings.notes(report), *findings.ignored(report)]
    if lines:
        yield Text()
    for line in lines:
        yield from page.paragraph(line, rest="  ")


def _comparison(page: Page, report: Report) -> Lines:
    """What differs between host and container; with -v everything that was compared."""
    rows = [(row.what, row.host, row.container) for row in report.comparison if row.differs or page.verbose or row.what == "GPUs"]
    if rows:
        yield Text()
        first, *rest = figures.columns([("", "Host", "Container"), *rows])
        yield Text(first, "bold")
        yield from map(Text, rest)


def _profiled(page: Page, report: Report) -> Lines:
    """The tables of a program that was profiled; with -v all of their rows."""
    for section in profiled.sections(report, profiled.ALL if page.verbose else profiled.SOME, page.width):
        yield Text()
        yield Text(section.title, "bold")
        if section.rows:
            yield from map(Text, figures.columns([section.head, *section.rows]))
        for line in section.lines:
            yield from page.paragraph(line, rest="  ")


def _measured(page: Page, report: Report) -> Lines:
    """The figures with an expected value, with -v all; then what they mean for language models."""
    rows = figures.rows(report, all=page.verbose)
    if rows:
        yield Text()
        first, *rest = figures.columns([figures.HEADINGS, *rows])
        yield Text(first, "bold")
        yield from map(Text, rest)
        took = f"Measured in {report.measured.seconds:.1f} s. Expected: the typical value for this GPU or link."
        yield from page.paragraph(took + _baseline(report.measured.with_baseline))
        yield from page.paragraph(figures.judged_by_itself(report))
    if page.verbose and report.measured.spent:
        yield Text()
        yield Text("Where the time went, in seconds; imports and GPUs at the same time", "bold")
        yield from map(Text, figures.columns([(name, f"{seconds:.1f}") for name, seconds in report.measured.spent.items()]))
    for title, matrix in figures.matrices(report) if page.verbose else ():
        yield Text()
        yield Text(title, "bold")
        yield from map(Text, figures.columns(matrix))
    for why in report.measured.left_alone:
        yield from page.paragraph(why, "Not measured: ", "  ")
    for title, table in figures.about_models(report)[: None if page.verbose else 1]:
        yield Text()
        yield from page.paragraph(title)
        first, *rest = figures.columns(table)
        yield Text(first, "bold")
        yield from map(Text, rest)
