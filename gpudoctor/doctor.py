"""Judge: selects the checks, collects their findings, and finds the root cause."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gpudoctor import catalog, ignoring, roots, seen
from gpudoctor.choices import ACCEPTANCE, BURN, DEPTHS
from gpudoctor.coverage import coverage
from gpudoctor.errors import UserError
from gpudoctor.facts import Facts
from gpudoctor.facts.guarded import WRONG, comparable
from gpudoctor.facts.known import known
from gpudoctor.facts.overview import Read, overview, plainly, target
from gpudoctor.judging import acceptance, loaded
from gpudoctor.judging.containers import beside_host
from gpudoctor.judging.experiments import verdict
from gpudoctor.judging.measured import shortfalls
from gpudoctor.judging.measured.language_models import models
from gpudoctor.judging.python import package_files, shadowing
from gpudoctor.judging.texts.fitting import fitted, not_meant
from gpudoctor.judging.texts.unexplained import is_unexplained
from gpudoctor.knowledge.version import version as knowledge_version
from gpudoctor.model import (
    REPORT_SCHEMA,
    Check,
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
from gpudoctor.spelling import unknown
from gpudoctor.version import __version__

# Logs given as evidence can mention GPUs that the driver or the bus no longer knows.
OF_LOGS = ("xids", "memory-xids", "program-xids", "sxids", "adapter-init")

OF_COMMAND = "command"  # what explains why a user's command failed comes before all else that is wrong with the machine
WITHOUT_GPUS = "there is no GPU here, and nothing in it needs one"
_LONGEST_REASON = 300

Checks = dict[str, Check]
Outcome = tuple[Result, tuple[Finding, ...]]
Run = Callable[[Check, Facts], Outcome]
_HARMLESS = (Skip.NOT_APPLICABLE, Skip.UNSUPPORTED)  # reasons that hide nothing


def select(checks: Checks, level: str, only: Iterable[str] = (), skip: Iterable[str] = ()) -> Checks:
    """The checks of a level; or those of `only`, with all checks that they need. UserError for an unknown name.

    only, skip: ids of checks, of any level, areas and tags. An area or tag in `only` stands for its checks at this level.
    """
    only, skip = frozenset(only), frozenset(skip)
    groups = {group for check in checks.values() for group in check.groups}
    for name in sorted(only | skip):
        if name not in checks and name not in groups:
            raise UserError(unknown("check", name, (*checks, *sorted(groups))))
    wanted = {id for id, check in checks.items() if DEPTHS.index(check.level) <= DEPTHS.index(level)}
    if level == BURN:  # one long load, and nothing else that is measured
        wanted = {id for id in wanted if checks[id].level == BURN or not checks[id].workloads}
    if level == ACCEPTANCE:
        wanted = {id for id in wanted if checks[id].level != "full"}
    if only:
        named = {id for id, check in checks.items() if id in only or (id in wanted and check.groups & only)}
        if not named:
            raise UserError(f"no check of {', '.join(sorted(only))} runs at level {level}; choose a higher --level")
        wanted = _with_needs(checks, named)
    return {id: check for id, check in checks.items() if id in wanted and not {id, *check.groups} & skip}


def deepest_level(checks: Checks) -> str:
    return max((check.level for check in checks.values()), key=DEPTHS.index, default="quick")


def level_of(taken: Snapshot) -> str:
    """The level at which a snapshot was taken; if not recorded, the level of the planned measurements."""
    if taken.level in DEPTHS:
        return taken.level
    plan = taken.measured.get("plan")
    workloads = plan.value.get("workloads") if plan and isinstance(plan.value, dict) else None
    wanted = set(workloads.values()) if isinstance(workloads, dict) else set()
    return deepest_level({id: check for id, check in catalog.checks().items() if id in wanted})


def _with_needs(checks: Checks, names: Iterable[str]) -> set[str]:
    wanted, queue = set[str](), [*names]
    while queue:
        name = queue.pop()
        wanted.add(name)
        queue += {*checks[name].needs, *checks[name].explained_by, *checks[name].after} - wanted
    return wanted


def judge(taken: Snapshot, checks: Checks, run: Run | None = None, read: Read = plainly) -> Report:
    """The verdict on a snapshot. Pure: the same snapshot gives the same report on any machine.

    run, read: instead of `run_check` and a call, for a caller that knows the outcome of some checks and facts.
    """
    report = acceptance.added(_judged(taken, checks, run or run_check, read), taken)
    of_command = sorted(report.diagnosis, key=lambda entry: OF_COMMAND not in (entry.check, *entry.explains))
    return ignoring.applied(replace(report, diagnosis=tuple(of_command)), taken.ignored)


def _judged(taken: Snapshot, checks: Checks, run: Run, read: Read) -> Report:
    if not _has_come_up(taken):
        return beside_host.why_first(_judge(taken, beside_host.checks(checks)))
    report = _judge(taken, checks, run, read)
    if not taken.host:
        return report
    of_host = replace(taken, replies=taken.host, host={}, measured={}, expected={}, experiments={}, expectation={}, counters={})
    return beside_host.joined(report, _judge(of_host, beside_host.checks(checks)), Facts(taken))


def judge_at_its_level(taken: Snapshot, level: str = "") -> Report:
    """The verdict of all checks at the snapshot's level, or at `level`."""
    return judge(taken, select(catalog.checks(), level or level_of(taken)))


def _has_come_up(taken: Snapshot) -> bool:
    """If a container did not start, only its host can be judged."""
    start = taken.replies.get("container-start")
    if not start or start.status != "ok" or not isinstance(start.value, dict):
        return True
    return bool(start.value.get("started")) or "from_text" in start.value


def read_in_vain(taken: Snapshot, checks: Checks) -> tuple[set[str], dict[str, Result]]:
    """The questions that these checks read although they were never asked (`PREFIX*`: all with a prefix), and the results."""
    unasked: set[str] = set()
    return unasked, _diagnosed(Facts(taken, catalog.problems_by_id, unasked.add), checks, run_check)[0]


def _judge(taken: Snapshot, checks: Checks, run: Run | None = None, read: Read = plainly) -> Report:
    facts = Facts(taken, catalog.problems_by_id)
    results, found = _diagnosed(facts, checks, run or run_check)
    entries = [*seen.added(found, checks, facts, taken)]
    return Report(
        schema=REPORT_SCHEMA,
        version=__version__,
        status=_overall(results.values(), facts),
        target={**read(target, facts), "taken": taken.taken},
        coverage=coverage(results.values(), facts.texts.alone, facts.job.alone),
        diagnosis=tuple(entry for entry in entries if entry.status is not Status.PASS),
        notes=tuple(entry for entry in entries if entry.status is Status.PASS),
        checks=tuple(results.values()),
        measured=_measured(checks, results, facts, taken),
        facts={**overview(facts, read), **loaded.fact(facts)},
        evidence=tuple(Recognised(text.name, text.kinds, text.total_lines) for text in facts.texts.all),
        knowledge=knowledge_version(),
    )


def _diagnosed(facts: Facts, checks: Checks, run: Run) -> tuple[dict[str, Result], tuple[Diagnosis, ...]]:
    results: dict[str, Result] = {}
    findings = facts.found
    idle: set[str] = set()
    for id, check in checks.items():
        blocker = None if id in OF_LOGS and facts.texts.all else _blocker(check, results, findings)
        if not idle.isdisjoint((*check.needs, *check.explained_by)):
            idle.add(id)
            results[id] = Result(id, Status.SKIP, WITHOUT_GPUS, reason=Skip.NOT_APPLICABLE, area=check.area)
        elif blocker:
            results[id] = Result(id, Status.BLOCKED, f"needs {blocker} to be healthy", blocked_by=blocker, area=check.area)
        else:
            results[id], found = run(check, facts)
            findings[id] = tuple(_with_problems_of_checks(finding, checks) for finding in found)
            idle |= {id for finding in found if finding.without_gpus}
    return results, roots.diagnosis(
        findings, results, facts, lambda problem: [one.id for one in catalog.finders(problem, checks)]
    )


def _blocker(check: Check, results: Mapping[str, Result], findings: Mapping[str, tuple[Finding, ...]]) -> str | None:
    """The root of what blocks a check: the failed check that it needs, or what blocks that one."""
    for need in (*check.needs, *check.explained_by):
        result = results.get(need)
        if result and result.status is Status.FAIL and (need in check.explained_by or not _is_partial(findings[need])):
            return need
        if result and result.status is Status.BLOCKED and need in check.needs:
            return result.blocked_by
    return None


def _is_partial(found: Iterable[Finding]) -> bool:
    return all(finding.partial for finding in found if finding.problem.status is Status.FAIL)


def _with_problems_of_checks(finding: Finding, checks: Checks) -> Finding:
    """Replaces each check named among the causes by the problems of that check."""
    if not any(id in checks for id in finding.causes):
        return finding
    named = {id: [problem.id for problem in catalog.found_by(checks[id])] for id in finding.causes if id in checks}
    return replace(finding, causes=tuple(cause for id in finding.causes for cause in named.get(id, (id,))))


def run_check(check: Check, facts: Facts) -> Outcome:
    """The row of one check, and what it found."""
    found: list[Finding] = []
    message = ""
    try:
        for finding in not_meant(comparable(check.judge(facts)), facts, check.area):
            found.append(_with_causes(finding, facts, check.id))  # noqa: PERF401 (what was found before a Skip counts)
        message = "" if _told(found) else _summary(check, facts)
    except Skip as skip:
        if all(finding.is_note for finding in _told(found)):
            return Result(check.id, Status.SKIP, skip.reason, reason=skip.kind, area=check.area), tuple(found)
    except Exception as failure:
        reason = f"{type(failure).__name__}: {failure}"[:_LONGEST_REASON]
        message = f"this check stopped with an error; please report it with the snapshot (--save FILE): {reason}"
        return Result(check.id, Status.ERROR, message, area=check.area), tuple(found)
    status = max((finding.problem.status for finding in _told(found)), key=list(Status).index, default=Status.PASS)
    message = message or "; ".join(finding.message for finding in _told(found))
    seconds = facts.measured.seconds(check.workloads) if check.workloads else 0.0
    return Result(check.id, status, message, seconds, area=check.area), tuple(found)


def _with_causes(finding: Finding, facts: Facts, check: str) -> Finding:
    """With causes that many checks share: shadowed packages, damaged files, and what experiments prove."""
    found = package_files.with_cause(shadowing.with_cause(fitted(finding, facts), facts), facts, check)
    return verdict.with_cause(found, facts, check)


def _told(found: Iterable[Finding]) -> list[Finding]:
    """The findings without clues, which only support others."""
    return [finding for finding in found if not finding.is_clue]


def _summary(check: Check, facts: Facts) -> str:
    """How healthy it is. Skip if what it describes could not be read: then nothing shows that it is healthy."""
    try:
        words = check.summary(facts)
    except Skip as skip:
        if skip.kind not in _HARMLESS:
            raise
        words = "nothing wrong found"
    return words + "".join(f"; GPU {index} does not answer" for index in facts.once(_lost) if check.of_gpus)


def _lost(facts: Facts) -> list[int]:
    none: list[int] = []
    return known(lambda: [gpu.index for gpu in facts.nvml.gpus if not gpu.is_reachable], none)


def _overall(results: Iterable[Result], facts: Facts) -> Status:
    """Skip for texts in which nothing was recognised, or nothing that explains what they report: nothing passed."""
    statuses = {result.status for result in results}
    if Status.FAIL in statuses:
        return Status.FAIL
    noted = any(finding.is_note for each in facts.found.values() for finding in each)
    recognised = noted or (any(text.kinds for text in facts.texts.all) and not is_unexplained(facts))
    if facts.texts.alone and not statuses & {Status.WARN, Status.ERROR} and not recognised:
        return Status.SKIP
    return Status.WARN if statuses & {Status.WARN, Status.ERROR} else Status.PASS


def _measured(checks: Checks, results: Mapping[str, Result], facts: Facts, taken: Snapshot) -> Measurements:
    found: dict[str, tuple[Figure, ...]] = {}
    for id, check in checks.items():
        if results[id].status in (Status.PASS, Status.WARN, Status.FAIL):
            with contextlib.suppress(Skip, *WRONG):
                found[id] = facts.once(check.figures)
    figures = {id: figures for id, figures in found.items() if figures}
    runs = {id: reply.value for id, reply in taken.measured.items() if reply.value and id != "plan"}
    every = [figure for each in figures.values() for figure in each]
    table = models(facts, every)
    left_alone = tuple(known(lambda: facts.measured.not_measured, dict[int, str]()).values()) if runs else ()
    no_seconds: Mapping[str, float] = {}
    return Measurements(
        figures,
        table,
        runs,
        facts.measured.total_seconds,
        left_alone,
        _with_baseline(facts, every),
        dict(known(lambda: facts.measured.spent, no_seconds)),
    )


def _with_baseline(facts: Facts, figures: Iterable[Figure]) -> int:
    return sum(bool(facts.baseline) and shortfalls.baseline(facts, figure) is not None for figure in figures)
