"""Experiments: runs what failed again, in fresh processes of the target, with suspected things taken away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpudoctor import catalog, doctor, protocol
from gpudoctor.bootstrap import AGAIN
from gpudoctor.errors import UserError, WorkError
from gpudoctor.facts import Facts
from gpudoctor.interpreter import Target
from gpudoctor.judging.experiments import subjects, verdict
from gpudoctor.judging.experiments.change import change
from gpudoctor.judging.experiments.outcome import TIMEOUT, Outcome, improved, worked
from gpudoctor.judging.experiments.proof import Proof
from gpudoctor.judging.experiments.search import proved, search
from gpudoctor.judging.experiments.subjects import Subject
from gpudoctor.judging.experiments.suspect import Surroundings, Suspect
from gpudoctor.judging.experiments.suspects import Failure, suspects
from gpudoctor.model import Check, Reply, Report, Snapshot
from gpudoctor.planning import Plan
from gpudoctor.worker.measuring import bench
from gpudoctor.worker.measuring.fork_server import RUNTIMES

PATIENCE_SECONDS = 2.0
ASK_SECONDS = 10.0
LEAST_SECONDS = 2.0  # a run that gets less time is not begun
START_SECONDS = 20.0  # a framework may need this long to be imported
TIMES = 3  # a run may take so many times as long as the failed one
OVER = "the time limit for experiments (--experiment-timeout) was reached"

Tell = Callable[[str], None]


def experiments(
    where: Target, answers: Snapshot, planned: Plan, checks: Mapping[str, Check], seconds: float, tell: Tell
) -> tuple[dict[str, Reply], int]:
    """The proofs, by subject, and the signal (0: none) that stopped them. Nothing is run if nothing failed or is slow."""
    if not planned.gpus:
        return {}, 0
    report = doctor.judge(answers, dict(checks))
    subjects_found = (*subjects.failed(answers.measured), *subjects.slow(report, Facts(answers), checks))
    laboratory = Laboratory(where, answers, planned, time.monotonic() + seconds, tell, blamed(report))
    found = {}
    for subject in subjects_found:
        began = time.monotonic()
        proof = laboratory.proof(subject)
        if proof:
            found[subject.id] = Reply("ok", proof.as_value(), "", round(time.monotonic() - began, 2))
        if laboratory.cut_off_by:
            break
    return found, laboratory.cut_off_by


def blamed(report: Report) -> set[str]:
    """The variables, limits and folders that findings about this machine are about."""
    named = {str(entry.evidence["variable"]) for entry in report.diagnosis if "variable" in entry.evidence}
    return named | {verdict.ABOUT[entry.check] for entry in report.diagnosis if entry.check in verdict.ABOUT}


@dataclass
class Laboratory:
    """Where the runs of all experiments are made, until the deadline."""

    where: Target
    answers: Snapshot
    planned: Plan
    deadline: float
    tell: Tell
    blamed: set[str] = field(default_factory=set)
    surroundings: Surroundings | None = None
    cut_off_by: int = 0

    def proof(self, subject: Subject) -> Proof | None:
        """None if nothing could be taken away."""
        if self.surroundings is None:
            self.surroundings = self._asked()
        failure = Failure(subject.first.words or subject.said, self.blamed, subject.figure is not None, readers(subject))
        able = suspects(self.surroundings, failure)
        if not able:
            return None
        good = improved(subject.first, less_is_better=subject.figure.less_is_better) if subject.figure else worked
        found = proved(search(subject.id, able, subject.first, good), lambda away: self._run(subject, away))
        self.blamed |= {suspect.name for suspect in found.guilty}
        return replace(found, also=subject.also, ended=found.ended and OVER)

    def _asked(self) -> Surroundings:
        """What the target inherits; nothing if it does not answer."""
        heard: dict[str, Any] = {}
        try:
            self.cut_off_by = self.where.run({"inherited": True, "seconds": ASK_SECONDS}, heard.update)
            return surroundings(heard.get("inherited", {}))
        except (UserError, WorkError):
            return Surroundings()

    def _run(self, subject: Subject, away: tuple[Suspect, ...]) -> Outcome | None:
        assert self.surroundings
        left = self.deadline - time.monotonic()
        if self.cut_off_by or left < LEAST_SECONDS:
            return None
        without = ", ".join(map(str, away[:2])) + (f" and {len(away) - 2} more" if len(away) > 2 else "")
        self.tell(f"Experimenting, at most {left:.0f} s left: {subject.id}" + (f" without {without}" if away else " as it is"))
        wanted = START_SECONDS + TIMES * subject.first.seconds
        if subject.first.how == TIMEOUT:
            wanted = START_SECONDS
        seconds = min(wanted, left)
        began = time.monotonic()
        heard = self._heard({**self._job(subject), "seconds": seconds, "change": change(away, self.surroundings).as_value()})
        is_late = time.monotonic() - began >= seconds
        if self.cut_off_by or (is_late and seconds < wanted):
            return None
        if is_late:
            return Outcome(False, TIMEOUT, f"not finished after {seconds:.0f} s", seconds)
        return self._outcome(subject, heard)

    def _job(self, subject: Subject) -> dict[str, Any]:
        gpus = [gpu for gpu in self.planned.gpus if subject.id.endswith((":all", f":gpu{gpu[0]}"))]
        what = {"workloads": [], "imports": [subject.name]} if subject.is_import else {"workloads": [subject.name]}
        return {**what, "gpus": gpus, "level": self.answers.level, "again": AGAIN}

    def _heard(self, job: dict[str, Any]) -> dict[str, Any]:
        """What the run said: its replies under "measured"."""
        heard: dict[str, Any] = {}
        measured: dict[str, Reply] = {}

        def hear(message: dict[str, Any]) -> None:
            heard.update(message)
            if "measured" in message:
                measured[message["measured"]] = protocol.reply(message)

        try:
            self.cut_off_by = self.where.run(job, hear, patience=PATIENCE_SECONDS)
        except (UserError, WorkError) as failure:
            heard["refused"] = str(failure)
        return {**heard, "measured": measured, "said": self.where.said()}

    def _outcome(self, subject: Subject, heard: dict[str, Any]) -> Outcome:
        measured: dict[str, Reply] = heard["measured"]
        if "refused" in heard:
            return Outcome(False, "did not start", heard["refused"])
        broken = [reply for id, reply in measured.items() if id.startswith("import:") and reply.status != "ok"]
        reply = measured.get(subject.id)
        if broken or reply is None:
            return subjects.outcome(broken[0]) if broken else Outcome(False, "did not start", heard["said"])
        found = subjects.outcome(reply)
        if not subject.figure:
            return found
        again = Facts(replace(self.answers, measured={**self.answers.measured, **measured}))
        return subjects.with_figure(found, subject, again, catalog.checks()[subject.check])


def surroundings(said: Mapping[str, Any]) -> Surroundings:
    """What the worker says it inherited; what has the wrong type is left out."""
    return Surroundings(**dict(_fitting(said)))


def _fitting(said: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, kind in (("user_site", str), ("python", str), ("cores", int), ("all_cores", int), ("raises_hard", bool)):
        if isinstance(said.get(name), kind):
            yield name, said[name]
    variables, limits = said.get("variables"), said.get("limits")
    if isinstance(variables, dict):
        yield "variables", {name: value for name, value in variables.items() if isinstance(value, str)}
    if isinstance(limits, dict):
        pairs = {name: tuple(pair) for name, pair in limits.items() if isinstance(pair, list) and len(pair) == 2}
        yield "limits", {name: pair for name, pair in pairs.items() if all(one is None or isinstance(one, int) for one in pair)}


def readers(subject: Subject) -> tuple[str, ...]:
    """The frameworks and libraries that a subject uses; none if that is not known, as for programs that compile."""
    if subject.is_import:
        return (subject.name, "driver")
    if subject.name.startswith(("rung", "profile")):
        return ()
    workload = bench.workload(subject.name)
    together = ("nccl",) if workload.scope == bench.TOGETHER else ()
    return tuple(dict.fromkeys(filter(None, (RUNTIMES[workload.runtime].package, *together, "driver"))))
