"""What the runs of an experiment prove."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpudoctor.judging.experiments.outcome import Outcome
from gpudoctor.judging.experiments.suspect import Suspect

CONFIRMED = "confirmed"  # it fails, works without the guilty, and fails again
LIKELY = "likely"  # the same without the last run or with one that works, or before the guilty were narrowed down
ELSEWHERE = "elsewhere"  # it fails in the same way without all suspects that it does not need: none of them is the cause
UNSTEADY = "unsteady"  # it worked when nothing was different: it fails only sometimes
OPEN = "open"  # the runs do not show anything
NAMED = 1000  # the weight of a suspect that the error or a finding names


@dataclass(frozen=True)
class Trial:
    """One run without some suspects (their places in the list), and whether its outcome is good."""

    away: tuple[int, ...]
    outcome: Outcome
    good: bool


@dataclass(frozen=True)
class Proof:
    """subject: what failed: "gemm:gpu0", "import:torch" or a command. ended: why the search stopped early, "" if it did not.

    also: other subjects that failed in the same way. always: places that were away in all runs, since they keep what a run
    that works leaves for the next. A run without only these is one as things are.
    """

    subject: str
    suspects: tuple[Suspect, ...]
    trials: tuple[Trial, ...]
    ended: str = ""
    also: tuple[str, ...] = ()
    always: tuple[int, ...] = ()

    @cached_property
    def verdict(self) -> str:
        as_is = [place for place, trial in enumerate(self.trials) if not self.taken(trial)]
        if any(self.trials[place].good for place in as_is):
            return LIKELY if self._is_left_working(as_is) else UNSTEADY
        if self._decisive:
            repeated = as_is and as_is[-1] > self.trials.index(self._decisive)
            return CONFIRMED if repeated and not self.ended else LIKELY
        last = self.trials[-1]
        return ELSEWHERE if self.taken(last) and not self.ended and last.outcome.is_like(self.failing) else OPEN

    def _is_left_working(self, as_is: list[int]) -> bool:
        """Whether it failed each time until what its error names was away: the run that worked can have left something."""
        if not self._decisive or any(suspect.weight < NAMED for suspect in self._away(self._decisive)):
            return False
        decisive = self.trials.index(self._decisive)
        return all(not self.trials[place].good for place in as_is if place < decisive)

    @property
    def is_confirmed(self) -> bool:
        return self.verdict == CONFIRMED

    @property
    def guilty(self) -> tuple[Suspect, ...]:
        """What decides: without all of these it works. Several can matter together; none if nothing was found."""
        if self.verdict not in (CONFIRMED, LIKELY) or not self._decisive:
            return ()
        return self._away(self._decisive)

    def taken(self, trial: Trial) -> tuple[int, ...]:
        """The places that are away in a run, without those that always are."""
        return tuple(place for place in trial.away if place not in self.always)

    def _away(self, trial: Trial) -> tuple[Suspect, ...]:
        return tuple(self.suspects[place] for place in self.taken(trial))

    @property
    def failing(self) -> Outcome:
        """The outcome as things are."""
        return self.trials[0].outcome

    @property
    def working(self) -> Outcome | None:
        """The outcome without the guilty."""
        return self._decisive.outcome if self._decisive else None

    @property
    def ruled_out(self) -> tuple[Suspect, ...]:
        """Those without which it failed in the same way."""
        same = {place for trial in self.trials if trial.outcome.is_like(self.failing) and not trial.good for place in trial.away}
        return tuple(self.suspects[place] for place in sorted(same) if self.suspects[place] not in self.guilty)

    @cached_property
    def _decisive(self) -> Trial | None:
        good = [trial for trial in self.trials if trial.good and self.taken(trial)]
        return min(good, key=lambda trial: len(trial.away), default=None)

    def as_value(self) -> dict[str, Any]:
        trials = [{"away": list(t.away), "outcome": t.outcome.as_value(), "good": t.good} for t in self.trials]
        suspects = [suspect.as_value() for suspect in self.suspects]
        value = {"subject": self.subject, "suspects": suspects, "trials": trials, "ended": self.ended, "also": list(self.also)}
        return {**value, **({"always": list(self.always)} if self.always else {})}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Proof:
        """One of facts.guarded.WRONG if it is not the value of a proof."""
        suspects = tuple(map(Suspect.from_value, value["suspects"]))
        trials = tuple(_trial(raw, len(suspects)) for raw in value["trials"])
        also = tuple(map(str, value.get("also", ())))
        always = _places(value.get("always", ()), len(suspects))
        if not trials or not {*trials[0].away} <= {*always}:
            raise ValueError("the first run is not the one as things are")
        return cls(str(value["subject"]), suspects, trials, str(value.get("ended", "")), also, always)


def _trial(value: Mapping[str, Any], most: int) -> Trial:
    away = _places(value["away"], most)
    return Trial(away, Outcome.from_value(value["outcome"]), value["good"] is True)


def _places(value: Iterable[Any], most: int) -> tuple[int, ...]:
    places = tuple(int(place) for place in value)
    if any(not 0 <= place < most for place in places):
        raise ValueError("a run without an unknown suspect")
    return places
