"""Repeats a command without suspected things until it works, and names what decides."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpudoctor import experiment
from gpudoctor.errors import UserError
from gpudoctor.facts.command import QUESTION
from gpudoctor.judging.experiments import telling
from gpudoctor.judging.experiments.outcome import Outcome
from gpudoctor.judging.experiments.proof import Proof, Trial
from gpudoctor.judging.experiments.search import proved, search
from gpudoctor.judging.experiments.suspect import Surroundings, Suspect
from gpudoctor.judging.experiments.suspects import POSSIBLE, Failure, suspects
from gpudoctor.model import Reply, Report, Snapshot
from gpudoctor.trying import laboratory
from gpudoctor.why.case import Case, is_good, outcome
from gpudoctor.why.variables import others

ERROR_NAME = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b")
INTERRUPTED = "the repeats were interrupted"

Tell = Callable[[str], None]


def suspected(case: Case, surroundings: Surroundings, report: Report) -> tuple[Suspect, ...]:
    """What can be taken away from the command, the likeliest first."""
    words = "\n".join((*case.first.waiting, case.text))
    failure = Failure(words, experiment.blamed(report), case.kind == "slow")
    likely = suspects(surroundings, failure)
    known = {(suspect.kind, suspect.name, suspect.value) for suspect in likely}
    every = (*suspects(surroundings, replace(failure, is_slow=False)), *others(surroundings, failure))
    rest = (suspect for suspect in every if (suspect.kind, suspect.name, suspect.value) not in known)
    possible = (replace(suspect, weight=min(suspect.weight, POSSIBLE)) if failure.is_slow else suspect for suspect in rest)
    return tuple(sorted((*likely, *possible), key=lambda suspect: -suspect.weight))


@dataclass
class Search:
    """The repeats of a command. asked: what can be taken away, the likeliest first. attempts: how many repeats are allowed."""

    case: Case
    surroundings: Surroundings
    asked: tuple[Suspect, ...]
    attempts: int
    made: int = 0
    ended_by: int = 0
    tell: Tell = print

    def proof(self, tell: Tell) -> Proof:
        """The first repeat changes nothing: without input and a terminal the command has to fail in the same way again."""
        self.tell = tell
        original = Trial((), outcome(self.case.first, self.case.goal), good=False)
        first = self._run(())
        if first is None:
            return Proof(QUESTION, self.asked, (original,), self._why_ended())
        if self.is_good(first) or not is_alike(first, original.outcome):
            ended = "" if self.is_good(first) else _unlike(first)
            return Proof(QUESTION, self.asked, (original, Trial((), first, self.is_good(first))), ended)
        found = proved(search(QUESTION, self.asked, first, self.is_good, max(1, self.attempts - 1)), self._run)
        return replace(found, ended=found.ended and self._why_ended())

    def is_good(self, outcome: Outcome) -> bool:
        return is_good(outcome, self.case.repeated)

    def _why_ended(self) -> str:
        return INTERRUPTED if self.ended_by else f"{self.attempts} repeats were allowed (--attempts)"

    def _run(self, away: tuple[Suspect, ...]) -> Outcome | None:
        if self.ended_by or self.made >= self.attempts:
            return None
        self.made += 1
        without = ", ".join(map(str, away[:2])) + (f" and {len(away) - 2} more" if len(away) > 2 else "")
        self.tell(f"Repeat {self.made} of at most {self.attempts}: {f'without {without}' if away else 'as it is'}")
        try:
            attempt = laboratory.again(self.case.place, away, self.surroundings, self.case.repeated)
        except (OSError, UserError) as failure:
            return Outcome(False, "did not start", str(failure))
        self.ended_by = attempt.ended_by
        return None if attempt.ended_by else outcome(attempt.ran, self.case.repeated)


def is_alike(one: Outcome, other: Outcome) -> bool:
    """Without a terminal a program can wrap its lines elsewhere; the name of the error is the same."""
    names = [ERROR_NAME.findall(outcome.words.rpartition("\n")[2]) for outcome in (one, other)]
    return one.is_like(other) or (one.how == other.how and bool(names[0]) and names[0] == names[1])


def _unlike(outcome: Outcome) -> str:
    return f"repeated without input and terminal, it failed in another way: {telling.error(outcome)}"


def with_proof(answers: Snapshot, proof: Proof) -> Snapshot:
    return replace(answers, experiments={**answers.experiments, QUESTION: Reply("ok", proof.as_value())})
