"""Problems that the user decided to ignore: still in the report, but not in its verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpudoctor.model import Diagnosis, Ignored, Report, Result, Skip, Status

Rules = Mapping[str, Mapping[str, str]]
_FAULTY = (Status.FAIL, Status.WARN)


def applied(report: Report, rules: Rules) -> Report:
    """rules: problem -> its reason, and the day until which it is ignored; the day of the report decides, not today."""
    day = str(report.target.get("taken", ""))[:10]
    valid = {problem: rule for problem, rule in rules.items() if day <= str(rule.get("until", ""))}
    report = replace(report, notes=tuple(entry for entry in report.notes if entry.problem not in valid))
    ignored = [entry for entry in report.diagnosis if entry.problem in valid]
    if not ignored:
        return report
    left = tuple(entry for entry in report.diagnosis if entry.problem not in valid)
    checks = _rows(report.checks, ignored, left, valid, on_host=False)
    host = _rows(report.host, ignored, left, valid, on_host=True)
    told = tuple(_told(entry, valid[entry.problem]) for entry in ignored)
    return replace(report, status=_overall((*checks, *host)), diagnosis=left, checks=checks, host=host, ignored=told)


def _told(entry: Diagnosis, rule: Mapping[str, str]) -> Ignored:
    return Ignored(
        problem=entry.problem,
        title=entry.title,
        message=entry.message,
        gpu=entry.gpu,
        status=entry.status,
        on_host=entry.on_host,
        reason=str(rule.get("reason", "")),
        until=str(rule.get("until", "")),
    )


def _rows(
    rows: Iterable[Result], ignored: Iterable[Diagnosis], left: Iterable[Diagnosis], rules: Rules, on_host: bool
) -> tuple[Result, ...]:
    """A check that failed only because of ignored problems is skipped."""
    causes = {id: entry for entry in ignored if entry.on_host is on_host for id in (*entry.explains, entry.check)}
    still = {id for entry in left if entry.on_host is on_host for id in (*entry.explains, entry.check)}
    return tuple(
        _skipped(row, causes[row.id], rules) if row.status in _FAULTY and row.id in causes and row.id not in still else row
        for row in rows
    )


def _skipped(row: Result, cause: Diagnosis, rules: Rules) -> Result:
    rule = rules[cause.problem]
    said = f"{cause.problem} is ignored until {rule.get('until', '')}: {rule.get('reason', '')}"
    return replace(row, status=Status.SKIP, reason=Skip.IGNORED, message=said)


def _overall(rows: Iterable[Result]) -> Status:
    statuses = {row.status for row in rows}
    if Status.FAIL in statuses:
        return Status.FAIL
    return Status.WARN if statuses & {Status.WARN, Status.ERROR} else Status.PASS
