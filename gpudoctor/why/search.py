"""Repeats a command without suspected things until it works, and names what decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from gpudoctor import experiment
from gpudoctor.errors import UserError
from gpudoctor.facts.command import QUESTION
from gpudoctor.judging.experiments import telling
from gpudoctor.judging.experiments.outcome import Outcome
from gpudoctor.judging.experiments.proof import ELSEWHERE, NAMED, Proof, Trial
from gpudoctor.judging.experiments.search import Steps, proved, search
from gpudoctor.judging.experiments.suspect import Surroundings, Suspect
from gpudoctor.judging.experiments.suspects import POSSIBLE, Failure, is_of_compiler, suspects
from gpudoctor.model import Reply, Report, Snapshot
from gpudoctor.trying import laboratory
from gpudoctor.trying.start import LONGER
from gpudoctor.why.case import Case, is_good, outcome
from gpudoctor.why.variables import named_by, others, own_files, with_values

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
    found = with_values(named_by(own_files(case.place.argv), (*likely, *possible)), case.place.variables, words)
    return tuple(sorted(found, key=lambda suspect: -suspect.weight))


@dataclass
class Search:
    """The repeats of a command. asked: what can be taken away, the likeliest first. attempts: how many repeats are allowed.

    parts: of the machine, each tried alone if no setting decides.

    has_run_longer: whether the last one was ended since it ran far longer than the run that failed.
    """

    case: Case
    surroundings: Surroundings
    asked: tuple[Suspect, ...]
    attempts: int
    made: int = 0
    ended_by: int = 0
    parts: tuple[Suspect, ...] = ()
    has_run_longer: bool = False
    tell: Tell = print

    def proof(self, tell: Tell) -> Proof:
        """The first repeat takes away at most what compilers keep: the command has to fail in the same way again.

        Without that, what one repeat compiles would help the next. If it decides, or the command needs it, the others keep it.
        """
        self.tell = tell
        original = Trial((), outcome(self.case.first, self.case.goal), good=False)
        caches = () if self.case.goal.is_speed or self._is_cache_named() else self._caches
        empty = self._run(self._suspects(caches)) if caches else None
        if empty and not self.is_good(empty) and is_alike(empty, original.outcome):
            return self._without_parts(self._with_empty_caches(caches, empty))
        first = self._run(())
        if first is None:
            return Proof(QUESTION, self.asked, (original,), self._why_ended())
        if self.is_good(first) or not is_alike(first, original.outcome):
            ended = "" if self.is_good(first) else _unlike(first)
            return Proof(QUESTION, self.asked, (original, Trial((), first, self.is_good(first))), ended)
        asked = self._suspects(caches) if empty and self.is_good(empty) and not self.has_run_longer else self.asked
        return self._without_parts(self._found(search(QUESTION, asked, first, self.is_good, self._left), self._run))

    def _without_parts(self, proof: Proof) -> Proof:
        """With a run without each part, if it fails without all settings; the first that decides is confirmed by another run."""
        if proof.verdict != ELSEWHERE or self.case.goal.is_speed:
            return proof
        always = tuple(proof.suspects[place] for place in proof.always)
        trials: list[Trial] = []
        for place, part in enumerate(self.parts, len(proof.suspects)):
            outcome = self._run((part, *always))
            if outcome is None:
                break
            trials.append(Trial((place, *proof.always), outcome, self.is_good(outcome)))
            if trials[-1].good:
                again = self._run(always)
                trials += [Trial(proof.always, again, self.is_good(again))] if again else []
                break
        every = (*proof.trials[:-1], *trials, proof.trials[-1])
        is_found = any(trial.good for trial in trials)
        return replace(proof, suspects=(*proof.suspects, *self.parts), trials=(*proof.trials, *trials) if is_found else every)

    def _with_empty_caches(self, caches: tuple[int, ...], first: Outcome) -> Proof:
        """The proof if each repeat begins with empty caches of compilers."""
        rest = tuple(place for place in range(len(self.asked)) if place not in caches)
        empty = self._suspects(caches)
        steps = search(QUESTION, self._suspects(rest), first, self.is_good, self._left)
        found = self._found(steps, lambda away: self._run((*away, *empty)))
        trials = (replace(trial, away=(*(rest[place] for place in trial.away), *caches)) for trial in found.trials)
        return replace(found, suspects=self.asked, trials=tuple(trials), always=caches)

    def _found(self, steps: Steps, run: Callable[[tuple[Suspect, ...]], Outcome | None]) -> Proof:
        found = proved(steps, run)
        return replace(found, ended=found.ended and self._why_ended())

    @property
    def _caches(self) -> tuple[int, ...]:
        return tuple(place for place, suspect in enumerate(self.asked) if is_of_compiler(suspect))

    def _is_cache_named(self) -> bool:
        return any(suspect.weight >= NAMED and is_of_compiler(suspect) for suspect in self.asked[:1])

    def _suspects(self, places: Iterable[int]) -> tuple[Suspect, ...]:
        return tuple(self.asked[place] for place in places)

    @property
    def _left(self) -> int:
        """How many repeats may still be made."""
        return max(1, self.attempts - self.made)

    def is_good(self, outcome: Outcome) -> bool:
        return is_good(outcome, self.case.repeated)

    def _why_ended(self) -> str:
        return INTERRUPTED if self.ended_by else f"{self.attempts} repeats were allowed (--attempts)"

    def _run(self, away: tuple[Suspect, ...]) -> Outcome | None:
        if self.ended_by or self.made >= self.attempts:
            return None
        self.made += 1
        named = [suspect for suspect in away if not is_of_compiler(suspect)] or away
        self.tell(f"Repeat {self.made} of at most {self.attempts}: {telling.changed(named) or 'as it is'}")
        try:
            attempt = laboratory.again(self.case.place, away, self.surroundings, self.case.repeated)
        except (OSError, UserError) as failure:
            return Outcome(False, "did not start", str(failure))
        self.ended_by = attempt.ended_by
        self.has_run_longer = attempt.ran.stopped == LONGER
        return None if attempt.ended_by else outcome(attempt.ran, self.case.repeated)


def is_alike(one: Outcome, other: Outcome) -> bool:
    """Without a terminal a program can wrap its lines elsewhere; the name of the error is the same."""
    names = [ERROR_NAME.findall(outcome.words.rpartition("\n")[2]) for outcome in (one, other)]
    return one.is_like(other) or (one.how == other.how and bool(names[0]) and names[0] == names[1])


def _unlike(outcome: Outcome) -> str:
    return f"repeated without input and terminal, it failed in another way: {telling.error(outcome)}"


def with_proof(answers: Snapshot, proof: Proof) -> Snapshot:
    return replace(answers, experiments={**answers.experiments, QUESTION: Reply("ok", proof.as_value())})
