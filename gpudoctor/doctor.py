"""Judge: which checks run, what they find, and which finding is the root of the others."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, replace

from gpudoctor import catalog, fixes
from gpudoctor.errors import UserError
from gpudoctor.facts import Facts
from gpudoctor.facts.overview import overview, target
from gpudoctor.judging.containers import beside_host
from gpudoctor.judging.measured.language_models import models
from gpudoctor.judging.python import shadowing
from gpudoctor.knowledge.version import version as knowledge_version
from gpudoctor.model import (
    REPORT_SCHEMA,
    Action,
    Check,
    Confidence,
    Coverage,
    Diagnosis,
    Figure,
    Finding,
    Measurements,
    Recognised,
    Report,
    Result,
    Skip,
    Snapshot,
    Status,
)
from gpudoctor.version import __version__

# A log that was given tells of GPUs that the driver, or the bus, no longer knows.
OF_LOGS = ("xids", "memory-xids", "program-xids", "sxids", "adapter-init")
LEVELS = ("quick", "standard", "full")

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


def deepest_level(checks: Checks) -> str:
    return max((check.level for check in checks.values()), key=LEVELS.index, default="standard")


def level_of(taken: Snapshot) -> str:
    """The level at which a snapshot was taken; without one, that of what was to be measured."""
    if taken.level in LEVELS:
        return taken.level
    plan = taken.measured.get("plan")
    workloads = plan.value.get("workloads") if plan and isinstance(plan.value, dict) else None
    wanted = set(workloads.values()) if isinstance(workloads, dict) else set()
    return deepest_level({id: check for id, check in catalog.checks().items() if id in wanted})


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
    return not start or bool(start.value["started"]) or "from_text" in start.value


def _judge(taken: Snapshot, checks: Checks) -> Report:
    facts = Facts(taken)
    results: dict[str, Result] = {}
    findings: dict[str, list[Finding]] = {}
    for id, check in checks.items():
        blocker = None if id in OF_LOGS and facts.texts.all else _blocker(check, results, findings)
        if blocker:
            message = f"needs {blocker} to be healthy"
            results[id] = Result(id, Status.BLOCKED, message, blocked_by=blocker, area=check.area)
        else:
            results[id], findings[id] = _run(check, facts)
    diagnosis = _diagnosis(findings, results, facts, _finders(checks))
    return Report(
        schema=REPORT_SCHEMA,
        version=__version__,
        status=_overall(results.values()),
        target={**target(facts), "taken": taken.taken},
        coverage=coverage(results.values(), facts.texts.alone),
        diagnosis=diagnosis,
        checks=tuple(results.values()),
        measured=_measured(checks, results, facts, taken),
        facts=overview(facts),
        evidence=tuple(Recognised(text.name, text.kinds, text.total_lines) for text in facts.texts.all),
        knowledge=knowledge_version(),
    )


def _finders(checks: Checks) -> dict[str, list[str]]:
    """Problem id -> the checks that would find it."""
    finders: dict[str, list[str]] = {}
    for id, check in checks.items():
        for problem in check.problems:
            finders.setdefault(problem.id, []).append(id)
    return finders


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
            found.append(shadowing.with_cause(finding, facts))  # noqa: PERF401 (what was found before a Skip counts)
        message = "" if found else _summary(check, facts)
    except Skip as skip:
        if not found:
            return Result(check.id, Status.SKIP, skip.reason, reason=skip.kind, area=check.area), []
        message = ""
    except Exception as bug:
        message = f"gpudoctor's own bug, please report it with the snapshot (--save FILE): {type(bug).__name__}: {bug}"
        return Result(check.id, Status.ERROR, message, area=check.area), found
    told = [finding for finding in found if not finding.is_clue]
    status = max((finding.problem.status for finding in told), key=list(Status).index, default=Status.PASS)
    message = message or "; ".join(finding.message for finding in told) or _summary(check, facts)
    return Result(check.id, status, message, facts.measured.seconds(check.workloads), area=check.area), found


def _summary(check: Check, facts: Facts) -> str:
    try:
        words = check.summary(facts)
    except Skip:
        words = "nothing wrong found"
    return words + "".join(f"; GPU {index} does not answer" for index in _lost(facts) if check.of_gpus)


def _lost(facts: Facts) -> list[int]:
    try:
        return [gpu.index for gpu in facts.nvml.gpus if not gpu.is_reachable]
    except Skip:
        return []


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


def _diagnosis(
    findings: Mapping[str, list[Finding]], results: Mapping[str, Result], facts: Facts, finders: Mapping[str, list[str]]
) -> tuple[Diagnosis, ...]:
    here = fixes.here(facts)
    entries = []
    for root in _roots(findings):
        blocked = [result.id for result in results.values() if result.blocked_by == root.check]
        explains = (*(blocked if root.finding.problem.status is Status.FAIL else ()), *root.effects)
        finding = _narrowed(_with(root.finding, root.effects), results, finders)
        entries.append((_rank(finding, explains), _entry(root.check, finding, explains, here)))
    return tuple(entry for _, entry in sorted(entries, key=lambda ranked: ranked[0]))


def _narrowed(finding: Finding, results: Mapping[str, Result], finders: Mapping[str, list[str]]) -> Finding:
    """What words alone say, beside what the checks of this machine found: no check that is well leaves its causes standing."""
    if not finding.causes:
        return finding

    def is_ruled_out(id: str) -> bool:
        return bool(finders.get(id)) and all(results[check].status is Status.PASS for check in finders[id])

    evidence = dict(finding.evidence)
    could_be = evidence.pop("could_be", [])
    out = [id for id in could_be if is_ruled_out(id)]
    evidence |= {name: ids for name, ids in (("could_be", [id for id in could_be if id not in out]), ("ruled_out", out)) if ids}
    if not is_ruled_out(finding.problem.id):
        return replace(finding, evidence=evidence)
    evidence["not_seen_by"] = finders[finding.problem.id]
    surest = finding.confidence is Confidence.CONFIRMED
    return replace(finding, evidence=evidence, confidence=Confidence.LIKELY if surest else finding.confidence)


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
    effects = [(id, effect) for id, effect in known if _causes_of(effect, known)]
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
        cause = next((root for step in _chain(effect, known) for root in _likeliest(step, roots)), None)
        if cause:
            cause.add(id, effect)
        else:  # two that explain each other
            roots.append(_Root(id, effect))
    return [root for root in roots if root.effects or not root.finding.is_clue]


def _chain(effect: Finding, known: list[tuple[str, Finding]]) -> Iterator[Finding]:
    """The effect, its cause, the cause of that ..."""
    seen: list[Finding] = []
    while effect not in seen:
        seen.append(effect)
        yield effect
        effect = next(iter(_causes_of(effect, known)), effect)


def _causes_of(effect: Finding, known: Iterable[tuple[str, Finding]]) -> list[Finding]:
    return [finding for _, finding in known if finding is not effect and _explains(finding, effect)]


def _likeliest(effect: Finding, roots: Iterable[_Root]) -> list[_Root]:
    """The roots that explain an effect, in the order in which it names its causes."""
    order = (effect.because, *effect.causes)
    return sorted(
        (root for root in roots if _explains(root.finding, effect)), key=lambda root: order.index(root.finding.problem.id)
    )


def _explains(cause: Finding, effect: Finding) -> bool:
    """A cause on one GPU explains nothing on another."""
    is_cause = cause.problem.id == effect.because or cause.problem.id in effect.causes
    return is_cause and (None in (cause.gpu, effect.gpu) or cause.gpu == effect.gpu)


def _is_same(one: Finding, other: Finding) -> bool:
    return (one.problem.id, one.gpu) == (other.problem.id, other.gpu)


def _with(finding: Finding, effects: Mapping[str, list[str]]) -> Finding:
    """A finding with what follows from it."""
    messages = [message for found in effects.values() for message in found]
    return replace(finding, evidence={**finding.evidence, "effects": messages}) if messages else finding


def _entry(id: str, finding: Finding, explains: tuple[str, ...], here: fixes.Here) -> Diagnosis:
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
        fixes=fixes.fitting(problem.fixes, here, finding.evidence),
        references=problem.references,
    )


def _rank(finding: Finding, explains: Sized) -> tuple[bool, bool, int, int, bool]:
    """What stops work comes first, then what harms it now, then what may one day; within each, what explains most."""
    problem = finding.problem
    is_latent = problem.latent and not explains
    action = list(Action).index(problem.action)
    return problem.status is not Status.FAIL, is_latent, -len(explains), -action, finding.gpu is None


def coverage(results: Iterable[Result], of_texts: bool = False) -> Coverage:
    """The honest sentence about how much was looked at. of_texts: where that was no machine."""
    results = list(results)
    skipped = Counter(result.reason or "" for result in results if result.status is Status.SKIP)
    applicable = len(results) - skipped.pop(Skip.NOT_APPLICABLE, 0)
    blocked = sum(result.status is Status.BLOCKED for result in results)
    errors = sum(result.status is Status.ERROR for result in results)
    ran = applicable - skipped.total() - blocked - errors
    if of_texts:
        said = f"No machine was asked: {ran} of {applicable} checks could judge what the texts tell."
        return Coverage(ran, applicable, dict(skipped), said)
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
