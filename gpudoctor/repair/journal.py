"""What the log of `gpudoctor fix --run` says before the first step and after the last."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model import Report
from gpudoctor.report import heading


def head(report: Report, machine: str, when: str) -> str:
    """when: local time, with its offset."""
    lines = (
        f"gpudoctor {report.version}, fix --run",
        f"Date:    {when}",
        f"Machine: {machine}, {heading.system(report)}",
        f"GPU:     {heading.gpus(report)}",
        f"Python:  {heading.python(report)}",
    )
    return "".join(f"{line}\n" for line in lines)


def outcome(before: Report, after: Report) -> list[str]:
    """A line for each problem: fixed, still there or new."""
    return list(_outcome(before, after))


def _outcome(before: Report, after: Report) -> Iterator[str]:
    was, now = ({entry.problem: entry for entry in report.diagnosis} for report in (before, after))
    for problem, entry in {**was, **now}.items():
        state = "fixed" if problem not in now else "still there" if problem in was else "new"
        yield f"{state + ':':<13}{entry.title} ({problem})"
