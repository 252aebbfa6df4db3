"""The report at a terminal for a machine without an NVIDIA GPU: what was checked, and what to type if it should have one."""

from __future__ import annotations

from collections.abc import Sequence

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
    yield from signed(entry.status, page.wrap(f"{entry.title}. {_prompt(entry.fixes)}", f"{words.label(entry.status)}  "))
    yield from to_paste(_command(entry.fixes))
    waiting = sum(row.status is Status.BLOCKED for row in report.checks)
    said = f"{report.coverage.ran} checks ran and found no other problem; {waiting} require a GPU."
    yield from page.paragraph(f"{said} More: -v, gpudoctor explain {PROBLEM}")


def _prompt(fixes: Sequence[Fix]) -> str:
    first = next((fix for fix in fixes if fix.command), None)
    return f"{first.title}:" if first else "If it should have one:"


def _command(fixes: Sequence[Fix]) -> str:
    return next((fix.command or fix.verify for fix in fixes if fix.command or fix.verify), "lspci -d 10de:")
