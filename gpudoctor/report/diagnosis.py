"""The diagnosis at a terminal: what is wrong, why, the evidence and the fixes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from gpudoctor.model import Fix, Report
from gpudoctor.report import findings, words
from gpudoctor.report.layout import Lines, Page, signed, to_paste

_INDENT = " " * 3
_DEEPER = " " * 5
_ALTERNATIVES = 5  # after the first fix; -v shows all
_EVIDENCE = 6  # values, likewise


def diagnosis(page: Page, report: Report) -> Lines:
    found = findings.groups(report.diagnosis)
    yield Text.assemble(("DIAGNOSIS  " if found else "", "bold"), words.headline(report, on_terminal=True))
    for number, group in enumerate(found, 1):
        yield Text()
        yield from _problem(page, number, group)


def _problem(page: Page, number: int, group: findings.Group) -> Lines:
    first = group[0]
    title = ("On the host: " if first.on_host else "") + first.title
    yield from (Text(line, "bold") for line in page.wrap(title, f"{number}. ", _INDENT))
    yield from signed(first.status, [_INDENT + words.to_do(first)])
    for entry in group:
        yield from page.paragraph(findings.seen(entry), f"{_INDENT}Seen: ", _DEEPER)
    yield from page.paragraph(findings.doubt(first), _INDENT, _DEEPER)
    if command := findings.decides(first):
        yield Text(f"{_INDENT}To confirm or rule it out:")
        yield from to_paste(command)
    yield from page.paragraph(first.why, f"{_INDENT}Why: ", _DEEPER)
    yield from _evidence(page, group)
    yield from _fixes(page, findings.fixes(group))
    yield Text()
    yield from page.paragraph(_explained(page, findings.explained(group)), f"{_INDENT}Explains: ", _DEEPER)
    yield Text(f"{_INDENT}More: gpudoctor explain {first.problem}", "dim")


def _explained(page: Page, checks: Sequence[str]) -> str:
    if page.verbose or not checks:
        return ", ".join(checks)
    return f"{len(checks)} other checks (-v lists them)" if len(checks) > 1 else f"{checks[0]}"


def _evidence(page: Page, group: findings.Group) -> Lines:
    """If several GPUs have one problem, only the first is shown; with -v all are."""
    for entry in group if page.verbose else group[:1]:
        of_gpu = f" of GPU {entry.gpu}" if len(group) > 1 and entry.gpu is not None else ""
        evidence = findings.evidence(entry)
        if evidence:
            yield Text(f"{_INDENT}Evidence{of_gpu}:")
        shown = list(evidence.items())[: None if page.verbose else _EVIDENCE]
        for name, value in shown:
            yield from map(Text, page.short(value, f"{_DEEPER}{name}: ", _DEEPER + "  "))
        if left := len(evidence) - len(shown):
            yield Text(f"{_DEEPER}{left} more with -v", "dim")


def _fixes(page: Page, fixes: Sequence[Fix]) -> Lines:
    """If consecutive fixes share a verify command, it is shown once, after the last of them."""
    shown = fixes if page.verbose else fixes[: 1 + _ALTERNATIVES]
    for number, fix in enumerate(shown):
        terms = f" ({words.terms(fix)})" if words.terms(fix) else ""
        yield Text()
        yield from page.paragraph(fix.title + terms, f"{_INDENT}{'Or' if number else 'Fix'}: ", _DEEPER)
        yield from to_paste(fix.command)
        if fix.undo:
            yield Text(f"{_INDENT}Undo:")
            yield from to_paste(fix.undo)
        following = shown[number + 1].verify if number + 1 < len(shown) else ""
        if fix.verify and fix.verify != following:
            yield Text(f"{_INDENT}Check that it worked:")
            yield from to_paste(fix.verify)
    if left := len(fixes) - len(shown):
        yield Text()
        yield Text(f"{_INDENT}{left} more alternative{'s' * (left > 1)} with -v", "dim")
