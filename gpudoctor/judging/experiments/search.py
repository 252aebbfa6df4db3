"""Which suspects to take away next, until the fewest are left without which the program works (delta debugging).

The caller runs what the generator yields and sends the outcome back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

from gpudoctor.judging.experiments.outcome import Good, Outcome, worked
from gpudoctor.judging.experiments.proof import Proof, Trial
from gpudoctor.judging.experiments.suspect import CURRENT_FOLDER, ENTRY, FOLDER, Suspect

Away = tuple[int, ...]
Steps = Generator[tuple[Suspect, ...], "Outcome | None", Proof]
Inner = Generator[tuple[Suspect, ...], "Outcome | None", bool]
Found = Generator[tuple[Suspect, ...], "Outcome | None", Away]
NO_MORE_RUNS = "no more runs were possible"
MOST_RUNS = 24
MOST_NEEDED = 4
NEEDED = (ENTRY, FOLDER, CURRENT_FOLDER)  # a program is more likely to need these than a variable


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


def _none() -> Found:
    return ()
    yield ()


class _Runs:
    """The runs so far; a set of suspects is taken away only once."""

    def __init__(self, suspects: Sequence[Suspect], first: Outcome, is_good: Good, most: int) -> None:
        self.suspects = suspects
        self.is_good = is_good
        self.most = most
        self.trials = [Trial((), first, is_good(first))]

    def decisive(self) -> Found:
        """The fewest places found without which it works; none if it fails without all."""
        every = tuple(range(len(self.suspects)))
        first = self._half(every)
        if len(first) == 1 and self._weight(first) * 2 > self._weight(every) and (yield from self.works(first)):
            return first
        return (yield from self._among(every, MOST_NEEDED))

    def _among(self, every: Away, needed: int) -> Found:
        """The fewest of these. If it fails in another way without all, it needs one, such as a folder of libraries: it stays."""
        if not every:
            return ()
        if (yield from self.works(every)):
            return (yield from self._fewest(every))
        if self._is_as_before(every) or not needed:
            return ()
        order = sorted(every, key=lambda place: self.suspects[place].kind not in NEEDED)
        same, other = 0, len(order)
        while other - same > 1:
            middle = (same + other) // 2
            first = tuple(order[:middle])
            if (yield from self.works(first)):
                return (yield from self._fewest(first))
            same, other = (middle, other) if self._is_as_before(first) else (same, middle)
        stays = order[other - 1]
        return (yield from self._among(tuple(place for place in every if place != stays), needed - 1))

    def _is_as_before(self, away: Away) -> bool:
        trial = next(trial for trial in self.trials[1:] if set(trial.away) == set(away))
        return trial.outcome.is_like(self.trials[0].outcome)

    def _fewest(self, rest: Away) -> Found:
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
        failed = [set(trial.away) for trial in self.trials if not trial.good and trial.outcome.is_like(self.trials[0].outcome)]
        return max((size for size in range(len(rest)) if any({*found, *rest[:size]} <= each for each in failed)), default=0)

    def _half(self, places: Away) -> Away:
        """The first places, at least one and not all, with about half of the weight."""
        sums = [abs(2 * self._weight(places[:size]) - self._weight(places)) for size in range(1, max(len(places), 2))]
        return places[: sums.index(min(sums)) + 1]

    def _weight(self, places: Away) -> int:
        return sum(self.suspects[place].weight for place in places)

    def works(self, away: Away) -> Inner:
        for trial in self.trials[1:]:
            if set(trial.away) == set(away):
                return trial.good
        return (yield from self._run(away))

    def again(self) -> Inner:
        return (yield from self._run(()))

    def _run(self, away: Away) -> Inner:
        away = tuple(sorted(away))
        outcome = None if len(self.trials) > self.most else (yield tuple(self.suspects[place] for place in away))
        if outcome is None:
            raise _Stop
        self.trials.append(Trial(away, outcome, self.is_good(outcome)))
        return self.trials[-1].good
