"""The report for a ticket: a table, the diagnosis with commands, everything else folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from gpudoctor.model import Fix, Report, Result, Status
from gpudoctor.plain import plain
from gpudoctor.report import figures, findings, heading, profiled, watched, words

_LONGEST_VALUE = 400
_EXPLAINED = 8
_SHOWN = 3  # messages of healthy checks in a row of the summary
_ZERO_WIDTH = "\u200b"


def render(report: Report) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"## gpudoctor: {words.label(report.verdict)}"
    yield ""
    if examined := heading.container(report):
        yield f"- {heading.container_label(report)}: {text(examined)}"
    if not heading.is_of_texts(report):
        yield f"- System: {text(heading.system(report))}"
        yield from (f"- GPU: {text(gpus)}" for gpus in filter(None, [heading.gpus_and_cuda(report)]))
        yield f"- Python: {text(' '.join(filter(None, (heading.python(report), heading.own_python(report)))))}"
        if software := heading.software(report):
            yield f"- Software: {text(software)}"
    yield from (f"- Read: {text(heading.evidence(given))}" for given in report.evidence)
    yield f"- gpudoctor {text(heading.version(report))}" + (
        f", {text(str(report.target['taken']))}" if "taken" in report.target else ""
    )
    yield ""
    yield from _table(("Status", "Area", "Result"), _areas(report))
    if found := watched.of(report):
        yield from (f"Watched {text(watched.heading(found))}", "")
        yield from _table(watched.HEAD, (tuple(map(text, row)) for row in watched.rows(found)))
        yield from (f"- {text(line)}" for line in watched.verdicts(report, found))
        yield ""
    if report.comparison:
        seen = ((text(row.what), text(row.host), text(row.container), "differs" * row.differs) for row in report.comparison)
        yield from _table(("", "Host", "Container", ""), seen)
    yield "### Diagnosis"
    yield ""
    yield text(words.headline(report))
    yield ""
    for number, group in enumerate(findings.groups(report.diagnosis), 1):
        yield from _problem(number, group, heading.is_of_texts(report))
    for line in (*findings.notes(report), *findings.ignored(report)):
        yield from (text(line), "")
    yield text(report.coverage.sentence)
    yield ""
    yield from _profiled(report)
    yield from _measured(report)
    if not heading.is_of_texts(report):
        yield from _every_check("All", report.checks)
    if report.host:
        yield ""
        yield from _every_check("On the host:", report.host)


def _areas(report: Report) -> Iterator[tuple[str, ...]]:
    for area, results in words.areas(report).items():
        status = words.worst(results)
        yield words.label(status), text(area), text(_summary(status, results))


def _summary(status: Status, results: Sequence[Result]) -> str:
    if words.does_not_apply(results):
        return "not applicable"
    shown = list(dict.fromkeys(result.message for result in results if result.status is status and result.message))
    if status not in (Status.PASS, Status.SKIP):
        names = [result.id for result in results if result.status in (Status.FAIL, Status.ERROR, Status.WARN)]
        return (f"{', '.join(names)}: " if names else "") + words.counts(results)
    more = f"; {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return "; ".join(shown[:_SHOWN]) + more


def _problem(number: int, group: findings.Group, of_texts: bool) -> Iterator[str]:
    first = group[0]
    yield f"#### {number}. {'On the host: ' if first.on_host else ''}{text(first.title)}"
    yield ""
    yield f"{words.to_do(first)}. {text(findings.doubt(first))}".rstrip()
    yield ""
    for entry in group:
        yield f"- Seen: {text(findings.seen(entry))}"
        yield from (f"  - {text(name)}: {code(value)}" for name, value in findings.evidence(entry).items())
    if places := dict.fromkeys(place for entry in group for place in entry.seen_in):
        yield f"- Seen in: {', '.join(map(code, places))}"
    if first.why:
        yield f"- Why: {text(first.why)}"
    if (explained := findings.explained(group)) and not of_texts:
        more = f" and {len(explained) - _EXPLAINED} more" if len(explained) > _EXPLAINED else ""
        yield f"- Explains: {', '.join(map(code, explained[:_EXPLAINED]))}{more}"
    yield f"- Problem: {code(first.problem)}, found by {code(first.check)}"
    yield from (f"- See: <{reference}>" for reference in first.references)
    yield ""
    for number_of_fix, fix in enumerate(findings.fixes(group)):
        yield from _fix("Or" if number_of_fix else "Fix", fix)


def _fix(word: str, fix: Fix) -> Iterator[str]:
    terms = words.terms(fix)
    yield f"{word}: {text(fix.title)}" + (f" ({text(terms)})" if terms else "")
    yield ""
    yield from fenced(fix.command)
    if fix.undo:
        yield "Undo:"
        yield ""
        yield from fenced(fix.undo)
    if fix.verify:
        yield "Check that it worked:"
        yield ""
        yield from fenced(fix.verify)


def _profiled(report: Report) -> Iterator[str]:
    for section in profiled.sections(report):
        yield f"### {text(section.title)}"
        yield ""
        if section.rows:
            yield from _table(tuple(map(text, section.head)), (tuple(map(text, row)) for row in section.rows))
        for line in section.lines:
            yield from (text(line), "")


def _measured(report: Report) -> Iterator[str]:
    for why in report.measured.left_alone:
        yield f"Not measured: {text(why)}"
        yield ""
    if rows := figures.rows(report, all=True):
        yield "<details>"
        yield "<summary>Measured</summary>"
        yield ""
        yield from _table(figures.HEADINGS, (tuple(map(text, row)) for row in rows))
        for title, (headings, *models) in figures.about_models(report):
            yield title
            yield ""
            yield from _table(tuple(map(text, headings)), (tuple(map(text, row)) for row in models))
        yield "</details>"
        yield ""


def _every_check(which: str, results: Sequence[Result]) -> Iterator[str]:
    yield "<details>"
    yield f"<summary>{which} {len(results)} checks</summary>"
    yield ""
    rows = ((words.label(result.status), code(result.id), _seconds(result), text(_said(result))) for result in results)
    yield from _table(("Status", "Check", "Seconds", "Result"), rows)
    yield "</details>"


def _seconds(result: Result) -> str:
    return f"{result.seconds:.2f}" if result.seconds else ""


def _said(result: Result) -> str:
    return f"blocked by {result.blocked_by}" if result.status is Status.BLOCKED else result.message


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def text(raw: str) -> str:
    """Text that renders as itself on one line, without mentions and without links to other tickets."""
    line = " ".join(plain(raw).split())
    escaped = re.sub(r"([\\`*_\[\]<>|~]|&(?=#?\w+;))", r"\\\1", line)
    return re.sub(r"([@#]|\b[Gg][Hh]-)(?=\w)", r"\1" + _ZERO_WIDTH, escaped)


def code(raw: str) -> str:
    """An inline code span, whatever backticks it contains; a very long one is cut."""
    line = " ".join(plain(raw).split()) or " "
    if len(line) > _LONGEST_VALUE:
        line = line[:_LONGEST_VALUE] + " …"
    ticks = fence(line, 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def fenced(command: str) -> Iterator[str]:
    if command:
        ticks = fence(command, 3)
        yield f"{ticks}sh"
        yield from map(plain, command.splitlines())
        yield ticks
        yield ""


def fence(content: str, fewest: int) -> str:
    """A run of backticks longer than any in the content."""
    longest = max((len(run) for run in re.findall("`+", content)), default=0)
    return "`" * max(fewest, longest + 1 if longest else fewest)
