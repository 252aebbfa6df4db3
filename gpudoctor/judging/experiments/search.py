"""Which suspects to take away next, until the fewest are left without which the program works (delta debugging).

The caller runs what the generator yields and sends the outcome back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

from gpudoctor.judging.experiments.outcome import Good, Outcome, worked
from gpudoctor.judging.experiments.proof import Proof, Trial
from gpudoctor.judging.experiments.suspect import Suspect

Away = tuple[int, ...]
Steps = Generator[tuple[Suspect, ...], "Outcome | None", Proof]
Inner = Generator[Away, "Outcome | None", bool]
NO_MORE_RUNS = "no more runs were possible"
MOST_RUNS = 24


class _Stop(Exception):
    """The caller makes no more runs."""


def proved(steps: Steps, run: Callable[[tuple[Suspect, ...]], Outcome | None]) -> Proof:
    """The proof of a search whose runs are made by `run`: without these suspects; None if no more runs are possible."""
    try:
        away = next(steps)
        while True:
            away = steps.send(run(away))
    except StopIteration as end:
        found: Proof = end.value
        return found


def search(subject: str, suspects: Iterable[Suspect], first: Outcome, is_good: Good = worked, most: int = MOST_RUNS) -> Steps:
    """Yields the suspects to take away, none for a run as things are; each time an Outcome, or None for no more, is sent back.

    suspects: the likeliest first. first: the outcome as things are. most: runs. One guilty of ten equally likely takes up to 7
    runs; one that is likelier than all others together takes 2.
    """
    suspects = tuple(suspects)
    runs = _Runs(suspects, first, is_good, most)
    ended = ""
    try:
        guilty = yield from runs.decisive() if suspects else _none()
        if guilty:
            yield from runs.again()
    except _Stop:
        ended = NO_MORE_RUNS
    return Proof(subject, suspects, tuple(runs.trials), ended)


def _none() -> Generator[tuple[Suspect, ...], Outcome | None, Away]:
    return ()
    yield ()


class _Runs:
    """The runs so far; a set of suspects is taken away only once."""

    def __init__(self, suspects: Sequence[Suspect], first: Outcome, is_good: Good, most: int) -> None:
        self.suspects = suspects
        self.is_good = is_good
        self.most = most
        self.trials = [Trial((), first, is_good(first))]

    def decisive(self) -> Generator[tuple[Suspect, ...], Outcome | None, Away]:
        """The fewest places found without which it works; none if it fails without all."""
        every = tuple(range(len(self.suspects)))
        first = self._half(every)
        if len(first) == 1 and self._weight(first) * 2 > self._weight(every) and (yield from self.works(first)):
            return first
        if (yield from self.works(every)):
            return (yield from self._fewest(every))
        if self.trials[-1].outcome.is_like(self.trials[0].outcome):
            return ()
        for place in every:  # something that it needs is among the suspects
            if (yield from self.works((place,))):
                return (place,)
        return ()

    def _fewest(self, rest: Away) -> Generator[tuple[Suspect, ...], Outcome | None, Away]:
        """Each round finds the place that has to be added: the last one of the shortest row of places that is enough."""
        found: Away = ()
        while True:
            known = self._known_too_short(found, rest)
            while len(rest) - known > 1:
                short = known + len(self._half(rest[known:]))
                if (yield from self.works(found + rest[:short])):
                    rest = rest[:short]
                else:
                    known = short
            found, rest = (*found, rest[-1]), rest[:-1]
            if not rest or (yield from self.works(found)):
                return found

    def _known_too_short(self, found: Away, rest: Away) -> int:
        failed = [frozenset(trial.away) for trial in self.trials if not trial.good]
        return max((size for size in range(len(rest)) if any({*found, *rest[:size]} <= each for each in failed)), default=0)

    def _half(self, places: Away) -> Away:
        """The first places, at least one and not all, with about half of the weight."""
        sums = [abs(2 * self._weight(places[:size]) - self._weight(places)) for size in range(1, max(len(places), 2))]
        return places[: sums.index(min(sums)) + 1]

    def _weight(self, places: Away) -> int:
        return sum(self.suspects[place].weight for place in places)

    def works(self, away: Away) -> Generator[tuple[Suspect, ...], Outcome | None, bool]:
        for trial in self.trials[1:]:
            if set(trial.away) == set(away):
                return trial.good
        return (yield from self._run(away))

    def again(self) -> Generator[tuple[Suspect, ...], Outcome | None, bool]:
        return (yield from self._run(()))

    def _run(self, away: Away) -> Generator[tuple[Suspect, ...], Outcome | None, bool]:
        away = tuple(sorted(away))
        outcome = None if len(self.trials) > self.most else (yield tuple(self.suspects[place] for place in away))
        if outcome is None:
            raise _Stop
        self.trials.append(Trial(away, outcome, self.is_good(outcome)))
        return self.trials[-1].good
