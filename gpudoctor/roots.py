"""Finds the findings that explain the others, and orders them as the diagnosis."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, replace
from typing import Any

from gpudoctor import fixes
from gpudoctor.facts import Facts
from gpudoctor.model import Action, Confidence, Diagnosis, Finding, Result, Status

OF_TEXTS = "text-facts"
"""Its rules repeat in part what the checks of a machine find; these are surer."""
OF_EXPERIMENTS = "experiments"
Finders = Callable[[str], list[str]]
"""Of a problem: the checks that can find it; asked only if words alone name a problem."""


def diagnosis(
    findings: Mapping[str, tuple[Finding, ...]], results: Mapping[str, Result], facts: Facts, finders: Finders
) -> tuple[Diagnosis, ...]:
    entries = []
    roots = _roots(findings)
    here = fixes.context(facts) if roots else fixes.FixContext(())
    for root in roots:
        blocked = [result.id for result in results.values() if result.blocked_by == root.check]
        explains = (*(blocked if root.finding.problem.status is Status.FAIL else ()), *root.effects)
        finding = _narrowed(_with(root.finding, root.effects), results, finders, facts)
        is_unsure = facts.texts.alone and bool(finding.evidence.get("could_be"))
        rank = _rank(finding, explains, root.check == OF_EXPERIMENTS, is_unsure)
        entries.append((rank, _entry(root.check, finding, explains, here)))
    return tuple(entry for _, entry in sorted(entries, key=lambda ranked: ranked[0]))


def _narrowed(finding: Finding, results: Mapping[str, Result], finders: Finders, facts: Facts) -> Finding:
    """Removes from a finding in texts the causes that a check on this machine has ruled out by passing.

    If that is the cause with which an unsure message leads, the next one that no check has ruled out takes its place.
    """
    if not finding.causes:
        return finding

    def is_ruled_out(id: str) -> bool:
        return bool(found := finders(id)) and all(results[check].status is Status.PASS for check in found)

    evidence = dict(finding.evidence)
    could_be = evidence.pop("could_be", [])
    out = [id for id in could_be if is_ruled_out(id)]
    evidence |= {name: ids for name, ids in (("could_be", [id for id in could_be if id not in out]), ("ruled_out", out)) if ids}
    if not is_ruled_out(finding.problem.id):
        return replace(finding, evidence=evidence)
    following = next((id for id in evidence.get("could_be", ()) if id in facts.problems), None)
    if following and finding.confidence is Confidence.UNKNOWN:
        evidence["could_be"] = [id for id in evidence["could_be"] if id != following]
        evidence["ruled_out"] = [finding.problem.id, *out]
        kept = {name: value for name, value in evidence.items() if value}
        return replace(finding, problem=facts.problems[following], evidence=kept)
    evidence["not_seen_by"] = finders(finding.problem.id)
    surest = finding.confidence is Confidence.CONFIRMED
    return replace(finding, evidence=evidence, confidence=Confidence.LIKELY if surest else finding.confidence)


@dataclass
class _Root:
    """A finding that no other finding explains. effects: check -> what it found because of this, or its view of the same
    fault."""

    check: str
    finding: Finding
    effects: dict[str, list[str]] = field(default_factory=dict)
    is_shown: bool = True

    def add(self, check: str, finding: Finding) -> None:
        """A cause is as severe as the worst effect that it explains. A clue is shown only if it explains more than clues."""
        self.is_shown |= not finding.is_clue
        if finding.is_clue:
            return
        self.effects.setdefault(check, []).append(finding.message)
        worst = max(self.finding.problem.status, finding.problem.status, key=list(Status).index)
        self.finding = replace(self.finding, problem=replace(self.finding.problem, status=worst))


def _roots(findings: Mapping[str, tuple[Finding, ...]]) -> list[_Root]:
    """The roots. A problem of one GPU that several checks see is kept once, from the first check."""
    known = [(id, finding) for id, found in findings.items() for finding in found]
    effects = [(id, effect) for id, effect in known if _causes_of(effect, known)]
    roots: list[_Root] = []
    for id, finding in known:
        if (id, finding) in effects:
            continue
        same = next((root for root in roots if root.check != id and _is_same(root.finding, finding)), None)
        if same and same.check == OF_TEXTS and finding.confidence is Confidence.CONFIRMED:
            same.check, known_before, same.finding = id, same.finding, finding
            same.add(OF_TEXTS, known_before)
        elif same:
            same.add(id, finding)
        else:
            roots.append(_Root(id, finding, is_shown=not finding.is_clue))
    for id, effect in effects:
        cause = next((root for step in _chain(effect, known) for root in _likeliest(step, roots)), None)
        if cause:
            cause.add(id, effect)
        else:  # two findings that explain each other
            roots.append(_Root(id, effect, is_shown=not effect.is_clue))
    return [root for root in roots if root.is_shown]


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
    """The roots that explain an effect: what was found on the machine, then clues, in the order in which it names its causes."""
    order = (effect.because, *effect.causes)

    def rank(root: _Root) -> tuple[bool, int]:
        id = root.finding.problem.id
        return root.finding.is_clue, order.index(id) if id in order else -1

    return sorted((root for root in roots if _explains(root.finding, effect)), key=rank)


def _explains(cause: Finding, effect: Finding) -> bool:
    """A cause on one GPU does not explain anything on another, nor a variable what another variable did."""
    if None not in (cause.gpu, effect.gpu) and cause.gpu != effect.gpu:
        return False
    if cause.named:
        return cause.is_clue and cause.problem.id in effect.causes and not {*cause.named}.isdisjoint(effect.named)
    is_cause = cause.problem.id == effect.because or cause.problem.id in effect.causes
    return is_cause or any(re.search(rf"\b{name}\b", cause.message) for name in effect.named)


def _is_same(one: Finding, other: Finding) -> bool:
    return (one.problem.id, one.gpu, one.named) == (other.problem.id, other.gpu, other.named)


def _with(finding: Finding, effects: Mapping[str, list[str]]) -> Finding:
    """A finding with its effects."""
    messages = [message for found in effects.values() for message in found]
    return replace(finding, evidence={**finding.evidence, "effects": messages}) if messages else finding


def _entry(id: str, finding: Finding, explains: tuple[str, ...], here: fixes.FixContext) -> Diagnosis:
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


def _rank(finding: Finding, explains: Sized, is_proved: bool, is_unsure: bool) -> tuple[Any, ...]:
    """What stops work comes first, then what does harm now, then what may do harm later; within each, what was proved by
    experiment, then what the outputs of a text decide before a message with several possible causes, then what explains most,
    then what costs a job most time."""
    problem = finding.problem
    is_latent = problem.latent and not explains
    action = list(Action).index(problem.action)
    size = -len(explains), -finding.gain, -action
    return problem.status is not Status.FAIL, is_latent, not is_proved, is_unsure, size, finding.gpu is None
