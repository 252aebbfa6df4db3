"""What evidence tells, for a person at a terminal: what was recognised, what it proves, then what is wrong."""

from __future__ import annotations

from dataclasses import replace

from rich.text import Text

from gpudoctor.facts.overview import FRAMEWORKS
from gpudoctor.model import Report
from gpudoctor.report import heading
from gpudoctor.report.diagnosis import diagnosis
from gpudoctor.report.layout import Lines, Page

_PACKAGES = 6
_LIVE = "On the machine itself, gpudoctor check looks at all that this text cannot tell; add the text with --log FILE."


def render(report: Report, width: int = 80, colours: bool = False, verbose: bool = False) -> str:
    """`verbose` shows all of the evidence."""
    page = Page.fitting(width, verbose)
    return page.printed(_lines(page, report), colours)


def _lines(page: Page, report: Report) -> Lines:
    for text in report.evidence:
        said = heading.evidence(text)
        unknown = not text.kinds and len(report.evidence) > 1
        yield from page.paragraph(f"{said}: no kind of text that is known" if unknown else said, "Read    ", " " * 8)
    yield from page.paragraph("; ".join(_facts(report)), "Proves  ", " " * 8)
    yield Text()
    if report.diagnosis:
        yield from diagnosis(page, _without_blocked(report))
        return
    known = any(text.kinds for text in report.evidence) or not report.evidence
    said = "Nothing wrong is told by what was recognised." if known else "Nothing in it is known to gpudoctor."
    yield Text(said, "bold")
    yield from page.paragraph(_LIVE)


def _without_blocked(report: Report) -> Report:
    """Which checks would have to wait is of no interest where no machine was asked."""
    return replace(report, diagnosis=tuple(replace(entry, explains=()) for entry in report.diagnosis))


def _facts(report: Report) -> list[str]:
    """What is known of the machine from the texts."""
    target, facts = report.target, report.facts
    known = {"distribution", "kernel", "container", "wsl"} & {name for name, value in target.items() if value}
    parts = [heading.system(report)] if known - {"wsl"} else []
    parts += [f"GPU: {heading.gpus(report)}"] if {"gpus", "pci_gpus", "driver_version"} & facts.keys() else []
    parts += [f"CUDA {facts['cuda_driver_version']}"] if facts.get("cuda_driver_version") else []
    parts += [f"Python {target['python_version']}"] if target.get("python_version") else []
    packages = facts.get("packages", {})
    frameworks = [name for name in FRAMEWORKS if name in packages]
    return [*parts, *(f"{name} {packages[name]}" for name in list(dict.fromkeys([*frameworks, *packages]))[:_PACKAGES])]
