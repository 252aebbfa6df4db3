"""The diagnosis at a terminal: what is wrong, why, and the fixes. In brief each problem has one command and no evidence."""

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


def diagnosis(page: Page, report: Report, brief: bool = False) -> Lines:
    found = findings.groups(report.diagnosis)
    yield Text.assemble(("DIAGNOSIS  " if found else "", "bold"), words.headline(report, on_terminal=True))
    for number, group in enumerate(found, 1):
        yield Text()
        yield from _problem(page, number, group)
        yield from _briefly(page, group) if brief else _in_full(page, group)


def _problem(page: Page, number: int, group: findings.Group) -> Lines:
    first = group[0]
    yield from (Text(line, "bold") for line in page.wrap(findings.title(first), f"{number}. ", _INDENT))
    yield from signed(first.status, [_INDENT + words.to_do(first)])
    for seen in findings.seen_by_all(group):
        yield from page.paragraph(seen, f"{_INDENT}Seen: ", _DEEPER)
    yield from page.paragraph(findings.doubt(first), _INDENT, _DEEPER)
    if command := findings.decides(first):
        yield Text(f"{_INDENT}To confirm or rule it out:")
        yield from to_paste(command)
    yield from page.paragraph(first.why, f"{_INDENT}Why: ", _DEEPER)


def _briefly(page: Page, group: findings.Group) -> Lines:
    """The first fix; if no command does it, also the first one that a command does."""
    fixes = findings.fixes(group)
    shown = fixes[:1] + [fix for fix in fixes if fix.command and not fixes[0].command][:1]
    for number, fix in enumerate(shown):
        word = f"Fix ({len(shown)} of {len(fixes)})" if number == 0 and len(fixes) > len(shown) else _word(number)
        yield from _fix(page, word, fix)
    if not any(fix.command for fix in shown):
        yield from _how_to_look(fixes)
    yield Text(f"{_INDENT}More: gpudoctor explain {group[0].problem}", "dim")


def _how_to_look(fixes: Sequence[Fix]) -> Lines:
    """Where no command fixes it: the command that shows whether it is fixed."""
    if verify := next((fix.verify for fix in fixes if fix.verify), ""):
        yield Text(f"{_INDENT}Check that it worked:")
        yield from to_paste(verify)


def _in_full(page: Page, group: findings.Group) -> Lines:
    if page.verbose:
        yield from page.paragraph(findings.places(group), f"{_INDENT}Seen in: ", _DEEPER)
    yield from _evidence(page, group)
    yield from _fixes(page, findings.fixes(group))
    yield Text()
    yield from page.paragraph(_explained(page, findings.explained(group)), f"{_INDENT}Explains: ", _DEEPER)
    yield Text(f"{_INDENT}More: gpudoctor explain {group[0].problem}", "dim")


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


def _word(number: int) -> str:
    return "Or" if number else "Fix"


def _fix(page: Page, word: str, fix: Fix) -> Lines:
    terms = f" ({words.terms(fix)})" if words.terms(fix) else ""
    yield from page.paragraph(fix.title + terms, f"{_INDENT}{word}: ", _DEEPER)
    yield from to_paste(fix.command)


def _fixes(page: Page, fixes: Sequence[Fix]) -> Lines:
    """If consecutive fixes share a verify command, it is shown once, after the last of them."""
    shown = fixes if page.verbose else fixes[: 1 + _ALTERNATIVES]
    for number, fix in enumerate(shown):
        yield Text()
        yield from _fix(page, _word(number), fix)
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
