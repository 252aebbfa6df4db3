"""Judge: which checks run, what they find, and which finding is the root of the others."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpudoctor import __version__, catalog
from gpudoctor.errors import UserError
from gpudoctor.facts import Facts
from gpudoctor.facts.overview import overview, readable, target
from gpudoctor.judging import beside_host
from gpudoctor.judging.models import models
from gpudoctor.model import (
    REPORT_SCHEMA,
    Action,
    Check,
    Coverage,
    Diagnosis,
    Figure,
    Finding,
    Fix,
    Measurements,
    Report,
    Result,
    Skip,
    Snapshot,
    Status,
)

LEVELS = ("quick", "standard", "full")
ON_THE_HOST = Fix("On the host, outside this container: there the same command names the lines to paste", "gpudoctor check")

Checks = dict[str, Check]


def select(checks: Checks, level: str, only: Iterable[str] = (), skip: Iterable[str] = ()) -> Checks:
    """The checks of a level; those named in `only` come with all that they need. UserError for a name that is none."""
    only, skip = tuple(only), set(skip)
    for name in (*only, *skip):
        if name not in checks:
            raise UserError(unknown("check", name, checks))
    wanted = {id for id, check in checks.items() if LEVELS.index(check.level) <= LEVELS.index(level)}
    if only:
        wanted = _with_needs(checks, only)
    return {id: check for id, check in checks.items() if id in wanted - skip}


def unknown(what: str, name: str, names: Iterable[str]) -> str:
    """One line about a name that is not known, with the nearest that are."""
    near = catalog.nearest(name, names)
    return f"no {what} is called {name!r}" + (f"; did you mean {' or '.join(near)}?" if near else "")


def _with_needs(checks: Checks, names: Iterable[str]) -> set[str]:
    wanted: set[str] = set()
    queue = list(names)
    while queue:
        name = queue.pop()
        wanted.add(name)
        queue += {*checks[name].needs, *checks[name].explained_by} - wanted
    return wanted


def judge(taken: Snapshot, checks: Checks) -> Report:
    """The verdict on a snapshot. Pure: the same snapshot gives the same report, on any machine."""
    if not _has_come_up(taken):
        return beside_host.why_first(_judge(taken, beside_host.checks(checks)))
    report = _judge(taken, checks)
    if not taken.host:
        return report
    of_host = replace(taken, replies=taken.host, host={}, measured={}, expected={})
    return beside_host.joined(report, _judge(of_host, beside_host.checks(checks)), Facts(taken))


def _has_come_up(taken: Snapshot) -> bool:
    """Of a container that did not, only its host can be judged."""
    start = taken.replies.get("container-start")
    return not start or bool(start.value["started"])


def _judge(taken: Snapshot, checks: Checks) -> Report:
    facts = Facts(taken)
    results: dict[str, Result] = {}
    findings: dict[str, list[Finding]] = {}
    for id, check in checks.items():
        blocker = _blocker(check, results, findings)
        if blocker:
            message = f"needs {blocker} to be healthy"
            results[id] = Result(id, Status.BLOCKED, message, blocked_by=blocker, area=check.area)
        else:
            results[id], findings[id] = _run(check, facts)
    diagnosis = _diagnosis(findings, results, facts)
    return Report(
        schema=REPORT_SCHEMA,
        version=__version__,
        status=_overall(results.values()),
        target={**target(facts), "taken": taken.taken},
        coverage=coverage(results.values()),
        diagnosis=diagnosis,
        checks=tuple(results.values()),
        measured=_measured(checks, results, facts, taken),
        facts=overview(facts),
    )


def _blocker(check: Check, results: Mapping[str, Result], findings: Mapping[str, list[Finding]]) -> str | None:
    """The root of what stands in a check's way: the failed check it needs, or what blocks that one."""
    for need in (*check.needs, *check.explained_by):
        result = results.get(need)
        if result and result.status is Status.FAIL and (need in check.explained_by or not _is_partial(findings[need])):
            return need
        if result and result.status is Status.BLOCKED and need in check.needs:
            return result.blocked_by
    return None


def _is_partial(found: Iterable[Finding]) -> bool:
    return all(finding.partial for finding in found if finding.problem.status is Status.FAIL)


def _run(check: Check, facts: Facts) -> tuple[Result, list[Finding]]:
    found: list[Finding] = []
    try:
        for finding in check.judge(facts):
            found.append(finding)  # noqa: PERF402 (what was found before a Skip counts)
        message = "" if found else _summary(check, facts)
    except Skip as skip:
        if not found:
            return Result(check.id, Status.SKIP, skip.reason, reason=skip.kind, area=check.area), []
        message = ""
    except Exception as bug:
        message = f"gpudoctor's own bug, please report it with the snapshot (--save FILE): {type(bug).__name__}: {bug}"
        return Result(check.id, Status.ERROR, message, area=check.area), found
    status = max((finding.problem.status for finding in found), key=list(Status).index, default=Status.PASS)
    message = message or "; ".join(finding.message for finding in found)
    return Result(check.id, status, message, facts.measured.seconds(check.workloads), area=check.area), found


def _summary(check: Check, facts: Facts) -> str:
    try:
        return check.summary(facts)
    except Skip:
        return "nothing wrong found"


def _overall(results: Iterable[Result]) -> Status:
    statuses = {result.status for result in results}
    if Status.FAIL in statuses:
        return Status.FAIL
    return Status.WARN if statuses & {Status.WARN, Status.ERROR} else Status.PASS


def _measured(checks: Checks, results: Mapping[str, Result], facts: Facts, taken: Snapshot) -> Measurements:
    found: dict[str, tuple[Figure, ...]] = {}
    for id, check in checks.items():
        if results[id].status in (Status.PASS, Status.WARN, Status.FAIL):
            with contextlib.suppress(Skip):
                found[id] = tuple(check.figures(facts))
    figures = {id: figures for id, figures in found.items() if figures}
    runs = {id: reply.value for id, reply in taken.measured.items() if reply.value and id != "plan"}
    table = models(facts, [figure for each in figures.values() for figure in each])
    left_alone = tuple(facts.measured.not_measured.values()) if runs and "plan" in taken.measured else ()
    return Measurements(figures, table, runs, facts.measured.total_seconds, left_alone)


def _diagnosis(findings: Mapping[str, list[Finding]], results: Mapping[str, Result], facts: Facts) -> tuple[Diagnosis, ...]:
    platform, values = facts.system.platform, _values(facts)
    entries = []
    for root in _roots(findings):
        blocked = [result.id for result in results.values() if result.blocked_by == root.check]
        explains = (*(blocked if root.finding.problem.status is Status.FAIL else ()), *root.effects)
        entries.append(_entry(root.check, _with(root.finding, root.effects), explains, platform, values))
    return tuple(sorted(entries, key=_severity))


@dataclass
class _Root:
    """A finding that no other one explains. effects: check -> what it found because of that, or saw of the same."""

    check: str
    finding: Finding
    effects: dict[str, list[str]] = field(default_factory=dict)

    def add(self, check: str, finding: Finding) -> None:
        """A cause is as bad as the worst that it explains."""
        self.effects.setdefault(check, []).append(finding.message)
        if finding.problem.status is Status.FAIL:
            self.finding = replace(self.finding, problem=replace(self.finding.problem, status=Status.FAIL))


def _roots(findings: Mapping[str, list[Finding]]) -> list[_Root]:
    """What is to be told: a problem of one GPU that several checks see is told once, by the first."""
    known = [(id, finding) for id, found in findings.items() for finding in found]
    effects = [(id, effect) for id, effect in known if any(_explains(finding, effect) for _, finding in known)]
    roots: list[_Root] = []
    for id, finding in known:
        if (id, finding) in effects:
            continue
        same = next((root for root in roots if root.check != id and _is_same(root.finding, finding)), None)
        if same:
            same.add(id, finding)
        else:
            roots.append(_Root(id, finding))
    for id, effect in effects:
        cause = next((root for step in _chain(effect, known) for root in roots if _explains(root.finding, step)), None)
        if cause:
            cause.add(id, effect)
        else:  # two that explain each other
            roots.append(_Root(id, effect))
    return roots


def _chain(effect: Finding, known: list[tuple[str, Finding]]) -> Iterator[Finding]:
    """The effect, its cause, the cause of that ..."""
    seen: list[Finding] = []
    while effect not in seen:
        seen.append(effect)
        yield effect
        effect = next((finding for _, finding in known if _explains(finding, effect)), effect)


def _explains(cause: Finding, effect: Finding) -> bool:
    """A cause on one GPU explains nothing on another."""
    return cause.problem.id == effect.because and (None in (cause.gpu, effect.gpu) or cause.gpu == effect.gpu)


def _is_same(one: Finding, other: Finding) -> bool:
    return (one.problem.id, one.gpu) == (other.problem.id, other.gpu)


def _with(finding: Finding, effects: Mapping[str, list[str]]) -> Finding:
    """A finding with what follows from it."""
    messages = [message for found in effects.values() for message in found]
    return replace(finding, evidence={**finding.evidence, "effects": messages}) if messages else finding


def _entry(
    id: str, finding: Finding, explains: tuple[str, ...], platform: tuple[str, ...], values: Mapping[str, Any]
) -> Diagnosis:
    problem = finding.problem
    return Diagnosis(
        problem=problem.id,
        title=problem.title,
        why=problem.why,
        message=finding.message,
        action=problem.action,
        status=problem.status,
        confidence=finding.confidence,
        check=id,
        gpu=finding.gpu,
        evidence=finding.evidence,
        explains=explains,
        fixes=_fixes(problem.fixes, platform, {**values, **finding.evidence}),
        references=problem.references,
    )


def _severity(entry: Diagnosis) -> tuple[bool, int, int]:
    return entry.status is not Status.FAIL, -len(entry.explains), -list(Action).index(entry.action)


def _fixes(fixes: tuple[Fix, ...], platform: tuple[str, ...], values: Mapping[str, Any]) -> tuple[Fix, ...]:
    """The ways out on this platform. A container cannot boot its host, whose distribution it does not know either."""
    suited = [fix.filled(values) for fix in fixes if fix.suits(platform)]
    if "container" not in platform:
        return tuple(replace(fix, on=()) for fix in suited)
    here = [_in_container(fix, values) for fix in suited if "reboot" not in fix.needs]
    return (*here, *(ON_THE_HOST for _ in suited[:1] if len(here) < len(suited)))


def _in_container(fix: Fix, values: Mapping[str, Any]) -> Fix:
    """Images have no sudo, and their user is mostly root already; a line for the host keeps it."""
    if not values.get("is_root") or re.search(r"\bhost\b", fix.title):
        return replace(fix, on=())
    needs = tuple(need for need in fix.needs if need != "root")
    return replace(fix, on=(), command=fix.command.replace("sudo ", ""), needs=needs)


def _values(facts: Facts) -> dict[str, Any]:
    """What any fix may name: <branch>, <driver>, <kernel>, <python>, <python_version>."""
    values = readable(
        {
            "branch": lambda: facts.driver.branch,
            "driver": lambda: facts.driver.module_version,
            "kernel": lambda: facts.system.kernel,
            "python": lambda: facts.python.executable,
            "python_version": lambda: "{}.{}".format(*facts.python.version),
            "is_root": lambda: facts.devices.identity.is_root,
        }
    )
    return {name: value for name, value in values.items() if value is not None}


def coverage(results: Iterable[Result]) -> Coverage:
    """The honest sentence about how much was looked at."""
    results = list(results)
    skipped = Counter(result.reason or "" for result in results if result.status is Status.SKIP)
    applicable = len(results) - skipped.pop(Skip.NOT_APPLICABLE, 0)
    blocked = sum(result.status is Status.BLOCKED for result in results)
    errors = sum(result.status is Status.ERROR for result in results)
    ran = applicable - skipped.total() - blocked - errors
    parts = [f"{ran} of {applicable} applicable checks ran"]
    parts += [f"{count} {_SKIPPED.get(kind, kind)}" for kind, count in sorted(skipped.items())]
    parts += [f"{blocked} waiting for a fix above"] * bool(blocked) + [f"{errors} broke"] * bool(errors)
    return Coverage(ran, applicable, dict(skipped), "; ".join(parts) + ".")


_SKIPPED = {
    Skip.UNSUPPORTED: "not supported here",
    Skip.NOT_PERMITTED: "not permitted (try as root)",
    Skip.NOT_INSTALLED: "without something that is not installed",
    Skip.NO_ANSWER: "without an answer",
    Skip.NOT_MEASURED: "not measured (gpudoctor check without --level quick measures)",
    Skip.BUSY: "not on a busy GPU",
    Skip.CUT_OFF: "missing, because the run was cut off",
}
