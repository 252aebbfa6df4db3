"""The report of `gpudoctor explain`: what was recognised, what is known from it, then what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text

from gpudoctor.facts.overview import FRAMEWORKS
from gpudoctor.model import Report, Result, Status
from gpudoctor.report import findings, heading
from gpudoctor.report.diagnosis import diagnosis
from gpudoctor.report.layout import Lines, Page
from gpudoctor.report.words import SIGNS

_PACKAGES = 6
_LIVE = "For more, run gpudoctor check --log FILE on the machine itself."


def render(report: Report, width: int = 80, colours: bool = False, verbose: bool = False) -> str:
    """verbose: show all evidence."""
    page = Page.fitting(width, verbose)
    return page.printed(_lines(page, report), colours)


def _lines(page: Page, report: Report) -> Lines:
    for text in report.evidence:
        said = heading.evidence(text)
        unknown = not text.kinds and len(report.evidence) > 1
        yield from page.paragraph(f"{said}: unknown format" if unknown else said, "Read    ", " " * 8)
    yield from page.paragraph("; ".join(_facts(report)), "Facts   ", " " * 8)
    yield Text()
    broken = [result for result in report.checks if result.status is Status.ERROR]
    if report.diagnosis:
        yield from diagnosis(page, _without_blocked(report))
        yield from _notes(page, report)
        yield from _broken(page, broken)
        return
    known = any(text.kinds for text in report.evidence) or report.notes or not report.evidence
    said = "Recognised, but nothing in it points to a problem." if known else "Nothing in this text is recognised."
    if known and report.evidence and not report.notes and report.status is Status.SKIP:
        said = "Nothing that is recognised in this text explains what it reports."
    if report.evidence and all("documentation" in text.kinds for text in report.evidence):
        said = "Documentation: the messages in it are quoted, and did not occur."
    yield Text("Not everything that was recognised could be judged." if broken else said, "bold")
    yield from _broken(page, broken)
    yield from _notes(page, report, has_room=True)
    yield from page.paragraph(_LIVE)


def _broken(page: Page, results: Sequence[Result]) -> Lines:
    """Checks that stopped with an error show nothing, also not that all is healthy."""
    for result in results:
        yield from page.paragraph(result.message, f"{SIGNS[Status.ERROR]} {result.id}: ", "  ")


def _notes(page: Page, report: Report, has_room: bool = False) -> Lines:
    """What costs nothing today, such as a deprecation, or little. has_room: with what to do about it."""
    groups = findings.groups(report.notes)
    for line, group in zip(findings.notes(report), groups, strict=True):
        yield from page.paragraph(line, rest="  ")
        for fix in group[0].fixes if has_room else ():
            yield from page.paragraph(f"- {fix.title}" + (f": {fix.command}" if fix.command else ""), "  ", "    ")


def _without_blocked(report: Report) -> Report:
    """Without the blocked checks: no machine was examined, so they would not have run anyway."""
    return replace(report, diagnosis=tuple(replace(entry, explains=()) for entry in report.diagnosis))


def _facts(report: Report) -> list[str]:
    """What the texts say about the machine."""
    target, facts = report.target, report.facts
    known = {"distribution", "kernel", "container", "wsl"} & {name for name, value in target.items() if value}
    parts = [heading.system(report)] if known - {"wsl"} else []
    parts += [f"GPU: {heading.gpus(report)}"] if {"gpus", "pci_gpus", "driver_version"} & facts.keys() else []
    parts += [f"CUDA {facts['cuda_driver_version']}"] if facts.get("cuda_driver_version") else []
    parts += [f"Python {target['python_version']}"] if target.get("python_version") else []
    packages = facts.get("packages", {})
    frameworks = [name for name in FRAMEWORKS if name in packages]
    return [*parts, *(f"{name} {packages[name]}" for name in list(dict.fromkeys([*frameworks, *packages]))[:_PACKAGES])]
