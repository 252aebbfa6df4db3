"""Judges many snapshots. A check that reads the same answers as on an earlier machine has the same outcome, and is not run again.
So it is with the facts that a report shows.

This needs no knowledge of the checks, because judging is pure: while a check runs, the questions that it asks are recorded. Of
the answers about a GPU, which are never the same twice, it is recorded which fields were read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import msgspec

from gpudoctor import doctor
from gpudoctor.facts import Facts, shared
from gpudoctor.facts.overview import Fields
from gpudoctor.facts.replies import Replies, beginnings
from gpudoctor.fleet.reading import OF_GPU, Answers
from gpudoctor.model import Check, Reply, Report, Snapshot

FIELD = "\0"  # between a question and a field of its answer
MOST_KNOWN = 24  # outcomes of one check
MOST_USUAL = 8  # sets of outcomes that many machines share
_ABSENT = object()
_COMPARABLE = (str, int, object)  # values that equal no value of another type among these, nor the JSON of one
WORTH = 4  # a check that met nothing known this often, and no more often did, reads what differs on each machine


@dataclass
class _Known:
    """outcomes: what was read, its numbers, and the outcome; the latest first."""

    outcomes: list[tuple[tuple[str, ...], tuple[Any, ...], Any]] = field(default_factory=list)
    met: int = 0
    missed: int = 0

    @property
    def is_worth(self) -> bool:
        return self.missed < WORTH * (1 + self.met)


class _Usual(NamedTuple):
    """What many machines have in common: all that was read for the outcomes of these checks and facts, and its numbers."""

    asked: tuple[str, ...]
    numbers: tuple[Any, ...]
    outcomes: dict[Hashable, Any]


@dataclass
class _Memory:
    """known: the outcomes of a check, by its id, or of a function that reads facts. usual: of all of them together, so that
    most machines are compared once."""

    known: dict[Hashable, _Known] = field(default_factory=dict)
    usual: list[_Usual] = field(default_factory=list)


class Judge:
    """Judges snapshots one after the other."""

    def __init__(self, checks: Mapping[str, doctor.Checks]) -> None:
        """checks: level -> the checks that judge a snapshot of that level."""
        self._checks = checks
        self._memory: dict[Any, _Memory] = {}

    def report(self, answers: Answers) -> Report:
        taken = answers.snapshot
        checks = self._checks[doctor.level_of(taken)]
        if taken.host or taken.experiments or taken.baseline:
            return doctor.judge(taken, checks)
        memory = self._memory.setdefault(tuple(sorted(taken.expected.items())), _Memory())
        run = _Run(taken, _Differing(answers), memory)
        report = doctor.judge(taken, checks, run.check, run.read)
        run.learn()
        return report


class _Differing(dict[str, Any]):
    """What of a snapshot decides whether an outcome is known: numbers of answers, of all those that begin alike, and fields.

    A key is a question, `prefix*`, or a question and a field.
    """

    def __init__(self, answers: Answers) -> None:
        super().__init__(answers.numbers)
        self._numbers = answers.numbers
        self._beginnings = beginnings(tuple(answers.numbers))
        self._replies = answers.snapshot.replies

    def __missing__(self, asked: str) -> Any:
        self[asked] = found = self._field(asked) if FIELD in asked else self._beginning(asked)
        return found

    def of(self, asked: tuple[str, ...]) -> tuple[Any, ...]:
        return tuple(map(self.__getitem__, asked))

    def _beginning(self, asked: str) -> Any:
        if not asked.endswith("*"):
            return None
        return tuple(map(self._numbers.__getitem__, self._beginnings.with_(asked[:-1])))

    def _field(self, asked: str) -> Any:
        question, _, name = asked.partition(FIELD)
        reply = self._replies.get(question)
        if reply is None or reply.status != "ok" or not isinstance(reply.value, dict):
            return self._numbers.get(question)
        value = reply.value.get(name, _ABSENT)
        return value if type(value) in _COMPARABLE else shared.once(value, msgspec.json.encode)


class _Fields(dict[str, Any]):
    """The answers about a GPU, which record what was read of them."""

    def __init__(self, question: str, values: Mapping[str, Any], asked: set[str]) -> None:
        super().__init__(values)
        self._question = question
        self._asked = asked

    def __getitem__(self, name: str) -> Any:
        self._asked.add(self._question + FIELD + name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._asked.add(f"{self._question}{FIELD}{name}")
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._asked.add(self._question + FIELD + name)
        return super().get(name, default)

    def _whole(self) -> None:
        self._asked.add(self._question)

    def items(self) -> Any:
        self._whole()
        return super().items()

    def values(self) -> Any:
        self._whole()
        return super().values()

    def keys(self) -> Any:
        self._whole()
        return super().keys()

    def __iter__(self) -> Any:
        self._whole()
        return super().__iter__()

    def __len__(self) -> int:
        self._whole()
        return super().__len__()


class _Asked(Replies):
    """Replies that record what was asked."""

    def __init__(self, replies: Mapping[str, Reply]) -> None:
        super().__init__(replies)
        self.asked: set[str] = set()

    def get(self, question: str) -> Reply:
        self.asked.add("reduced")
        reply = self._replies.get(question)
        if reply and reply.status == "ok" and question.startswith(OF_GPU) and isinstance(reply.value, dict):
            self.asked.add(question + FIELD)  # whether there is such an answer
            return replace(reply, value=_Fields(question, reply.value, self.asked))
        self.asked.add(question)
        return super().get(question)

    def is_missing(self, question: str) -> bool:
        self.asked.add(question)
        return super().is_missing(question)

    def starting_with(self, prefix: str) -> dict[str, Reply]:
        self.asked.add(f"{prefix}*")
        return super().starting_with(prefix)


class _Recording(Facts):
    """Facts that record what a check reads. unsteady: it read what no number stands for, such as a measurement."""

    def __init__(self, taken: Snapshot, of: Facts) -> None:
        self.unsteady = False
        super().__init__(taken, lambda: of.problems)
        self.found = of.found
        self.replies = _Asked(taken.replies)

    def __getattribute__(self, name: str) -> Any:
        if name in ("measured", "taken"):
            object.__setattr__(self, "unsteady", True)
        return super().__getattribute__(name)


class _Run:
    """Runs the checks on one snapshot."""

    def __init__(self, taken: Snapshot, differing: _Differing, memory: _Memory) -> None:
        self._taken = taken
        self._differing = differing
        self._memory = memory
        self._met: dict[Hashable, tuple[tuple[str, ...], Any]] = {}
        self._usual = next((usual for usual in memory.usual if differing.of(usual.asked) == usual.numbers), None)

    def learn(self) -> None:
        """Adds what was known of single checks to what is usual."""
        if not self._met:
            return
        last = self._usual or _Usual((), (), {})
        asked = tuple({*last.asked, *(name for asked, _ in self._met.values() for name in asked)})
        outcomes = {**last.outcomes, **{id: outcome for id, (_, outcome) in self._met.items()}}
        self._memory.usual = [each for each in self._memory.usual if each is not self._usual]
        self._memory.usual.insert(0, _Usual(asked, self._differing.of(asked), outcomes))
        del self._memory.usual[MOST_USUAL:]

    def check(self, check: Check, facts: Facts) -> doctor.Outcome:
        if check.after or check.workloads:
            return doctor.run_check(check, facts)
        found: doctor.Outcome = self._found(check.id, partial(doctor.run_check, check), facts)
        return found

    def read(self, make: Callable[[Facts], Fields], facts: Facts) -> Fields:
        found: Fields = self._found(make, make, facts)
        return found

    def _found(self, what: Hashable, make: Callable[[Facts], Any], facts: Facts) -> Any:
        if self._usual and what in self._usual.outcomes:
            return self._usual.outcomes[what]
        known = self._memory.known.setdefault(what, _Known())
        if not known.is_worth:
            return make(facts)
        for place, (asked, numbers, outcome) in enumerate(known.outcomes):
            if self._differing.of(asked) == numbers:
                known.met += 1
                if place:
                    known.outcomes.insert(0, known.outcomes.pop(place))
                self._met[what] = asked, outcome
                return outcome
        known.missed += 1
        recording = _Recording(self._taken, facts)
        replies = recording.replies
        assert isinstance(replies, _Asked)
        outcome = make(recording)
        if recording.unsteady:
            known.missed += WORTH
        else:
            asked = tuple(replies.asked)
            known.outcomes.insert(0, (asked, self._differing.of(asked), outcome))
            del known.outcomes[MOST_KNOWN:]
        return outcome
