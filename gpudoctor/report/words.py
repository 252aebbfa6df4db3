"""The words that all formats for people share: signs, areas, the headline, what a fix costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from gpudoctor.model import AREAS, GIVEN_AREAS, Action, Check, Diagnosis, Fix, Problem, Report, Result, Skip, Status
from gpudoctor.redaction.tokens import PRESENT
from gpudoctor.report import findings, heading

SIGNS = {
    Status.PASS: "✓",
    Status.SKIP: "–",
    Status.WARN: "!",
    Status.BLOCKED: "…",
    Status.FAIL: "✗",
    Status.ERROR: "?",
}
UNSEEN = (Skip.NOT_MEASURED, Skip.BUSY, Skip.NO_ANSWER)  # why a check could not look
_WORST_FIRST = (Status.FAIL, Status.ERROR, Status.WARN, Status.BLOCKED, Status.PASS, Status.SKIP)
_COUNTED = {
    Status.FAIL: "failed",
    Status.ERROR: "broken",
    Status.BLOCKED: "blocked",
    Status.WARN: "with warnings",
    Status.PASS: "passed",
    Status.SKIP: "skipped",
}
TO_DO = {
    Action.WATCH: "monitor it",
    Action.FIX_CONFIG: "change the configuration",
    Action.INSTALL: "install or upgrade something",
    Action.RESTART_APP: "restart the application",
    Action.RESET_GPU: "reset the GPU",
    Action.REBOOT: "reboot",
    Action.REPLACE_HARDWARE: "replace hardware",
}
TO_DO_FOR = {"program-raised-error": "correct the program, or what it was given"}  # as the action says too little
_RISKS = {"safe": "", "disruptive": "interrupts running work", "destructive": "loses data or settings"}
_NEEDS = {
    "root": "needs root",
    "reboot": "needs a reboot",
    "drain": "needs an idle GPU",
    "network": "needs the network",
}
ON_HOST = "on the host"
Row = TypeVar("Row", Check, Result)


def label(status: Status) -> str:
    return f"{SIGNS[status]} {status.value}"


def by_area(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Area -> its checks or results, in the fixed order of areas; unknown areas come last.

    An area of what a user has to give, such as a log or a running program, is left out if none of its checks ran.
    """
    areas: dict[str, list[Row]] = {area: [] for area in AREAS}
    for row in rows:
        areas.setdefault(row.area, []).append(row)
    return {area: found for area, found in areas.items() if found and (area not in GIVEN_AREAS or any(map(_ran, found)))}


def _ran(row: Check | Result) -> bool:
    """A program that was watched for too short a time is shown with this reason."""
    was_given = row.area == "job" and isinstance(row, Result) and row.reason != Skip.NOT_APPLICABLE
    return not isinstance(row, Result) or row.status is not Status.SKIP or was_given


def areas(report: Report) -> dict[str, list[Result]]:
    """Area -> its results, the host's last. For texts alone, only the checks that they could answer."""
    found = by_area(report.checks)
    if heading.is_of_texts(report):
        unseen = (Status.SKIP, Status.BLOCKED)
        seen = {
            area: [result for result in results if result.status not in unseen or (area == "job" and _ran(result))]
            for area, results in found.items()
        }
        found = {area: results for area, results in seen.items() if results}
    return {**found, ON_HOST: list(report.host)} if report.host else found


def does_not_apply(results: Iterable[Result]) -> bool:
    return all(result.status is Status.SKIP and result.reason == Skip.NOT_APPLICABLE for result in results)


def worst(results: Iterable[Result]) -> Status:
    """The status of an area. What a check found comes before checks that could not run."""
    return min((result.status for result in results), key=_WORST_FIRST.index)


def blocked(results: Iterable[Result]) -> dict[str, list[str]]:
    """Blocking check -> the checks that it blocks."""
    waiting: dict[str, list[str]] = {}
    for result in results:
        if result.status is Status.BLOCKED:
            waiting.setdefault(result.blocked_by or "another check", []).append(result.id)
    return waiting


def listed(names: Sequence[str], most: int) -> str:
    """`a, b, c`, or the beginning of a long list: `a, b and 40 more`."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def counts(results: Iterable[Result]) -> str:
    """How many of each, worst first: `1 failed, 3 passed`."""
    number = Counter(result.status for result in results)
    return ", ".join(f"{number[status]} {_COUNTED[status]}" for status in _WORST_FIRST if number[status])


def headline(report: Report, on_terminal: bool = False) -> str:
    """The verdict in one sentence. on_terminal: with a hint at what shows more there."""
    statuses = [group[0].status for group in findings.groups(report.diagnosis)]
    problems, warnings = statuses.count(Status.FAIL), statuses.count(Status.WARN)
    parts = [count(problems, "problem")] * bool(problems) + [count(warnings, "warning")] * bool(warnings)
    if parts:
        return " and ".join(parts) + (", the most severe first." if len(statuses) > 1 else ".") + _about_tokens(report)
    statuses_of_checks: Counter[str] = Counter(result.status for result in report.checks)
    number = statuses_of_checks + Counter(result.reason for result in report.checks if result.reason)
    said = _without_diagnosis(number, on_terminal)
    return said + (" Not everything was measured: see below." if report.measured.left_alone else "")


def _about_tokens(report: Report) -> str:
    """A warning if a command cannot be pasted, because it contains a token."""
    fixes = [fix for entry in report.diagnosis for fix in entry.fixes]
    found = next(filter(None, (PRESENT.search(text) for fix in fixes for text in (fix.command, fix.verify, fix.undo))), None)
    return f" Names in commands are replaced by tokens, such as {found[0]}." if found else ""


def _without_diagnosis(number: Mapping[str, int], on_terminal: bool) -> str:
    """number: how many checks have each status, and each reason for being skipped."""
    if broke := number[Status.ERROR]:
        return f"No problems found, but {count(broke, 'check')} stopped with an error in gpudoctor itself."
    if not number[Status.PASS]:
        return "No check could run: " + ("-v shows why." if on_terminal else "the checks below say why.")
    if missing := number["cut off"]:
        return f"No problems found before the run was interrupted: {count(missing, 'check')} did not run."
    if unseen := sum(number[kind] for kind in UNSEEN):
        which = "-v shows why" if on_terminal else "the checks below say why"
        return f"No problems found, but {count(unseen, 'check')} got no answer or measurement: {which}."
    return f"No problems found in the {count(number[Status.PASS], 'check')} that ran."


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("s" if number != 1 else "")


def to_do(problem: Problem | Diagnosis) -> str:
    """The status and the kind of fix: `✗ fail, what to do: reboot`."""
    if problem.status is Status.PASS:
        return "note"
    if problem.action is Action.NONE:
        return label(problem.status)
    id = problem.problem if isinstance(problem, Diagnosis) else problem.id
    return f"{label(problem.status)}, what to do: {TO_DO_FOR.get(id) or TO_DO[problem.action]}"


def terms(fix: Fix) -> str:
    """What a fix costs: `interrupts running work, needs root`."""
    words = [_RISKS.get(fix.risk, fix.risk), *(_NEEDS.get(need, f"needs {need}") for need in fix.needs)]
    return ", ".join(filter(None, words))
