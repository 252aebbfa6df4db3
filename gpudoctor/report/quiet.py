"""The report in two lines."""

from __future__ import annotations

from gpudoctor.model import Report
from gpudoctor.plain import plain
from gpudoctor.report import findings, heading, words


def render(report: Report) -> str:
    """The verdict, then the titles of the problems; for a healthy machine, what was examined."""
    titles = "; ".join(findings.title(group[0]) for group in findings.groups(report.diagnosis))
    return "".join(f"{plain(line)}\n" for line in (verdict(report), titles or heading.gpus_and_cuda(report)) if line)


def summary(report: Report) -> str:
    """What the writer of a file should know without opening it: the verdict and a line for each problem."""
    titles = [findings.title(group[0]) for group in findings.groups(report.diagnosis)]
    return "".join(f"{plain(line)}\n" for line in (verdict(report), *(f"  {title}" for title in titles)))


def verdict(report: Report) -> str:
    return f"{words.label(report.verdict)}: {words.headline(report, on_terminal=True)}"
