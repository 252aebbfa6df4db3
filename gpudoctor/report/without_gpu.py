"""The report at a terminal for a machine without an NVIDIA GPU: what was checked, and what to type if it should have one."""

from __future__ import annotations

from gpudoctor.model import Fix, Report, Status
from gpudoctor.report import words
from gpudoctor.report.layout import Lines, Page, signed, to_paste

PROBLEM = "no-nvidia-gpu"


def is_missing(report: Report) -> bool:
    """Whether the examined machine has no GPU; what needs one is then no news."""
    return any(entry.problem == PROBLEM and not entry.on_host for entry in report.diagnosis)


def is_all(report: Report) -> bool:
    """Whether nothing else was found."""
    return is_missing(report) and len(report.diagnosis) == 1 and all(row.status is not Status.ERROR for row in report.checks)


def lines(page: Page, report: Report) -> Lines:
    entry = report.diagnosis[0]
    first = entry.fixes[0] if entry.fixes else Fix("If it should have one, check the hardware")
    said = f"{entry.title}. {first.title}{':' if first.command else '.'}"
    yield from signed(entry.status, page.wrap(said, f"{words.label(entry.status)}  "))
    yield from to_paste(first.command) if first.command else ()
    ran, waiting = report.coverage.ran, sum(row.status is Status.BLOCKED for row in report.checks)
    others = f"{words.count(ran - 1, 'other check')} found no problem" if ran > 1 else "No other check ran"
    blocked = f"; {waiting} {'requires' if waiting == 1 else 'require'} a GPU" if waiting else ""
    yield from page.paragraph(f"{others}{blocked}. More: -v, gpudoctor explain {PROBLEM}")
