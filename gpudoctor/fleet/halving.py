"""Finds the nodes that make a collective slow or fail: the set is halved, and groups run side by side, until one is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

Group = tuple[str, ...]
SLOW = 0.7  # of the best group: what is below is slow


@dataclass(frozen=True)
class Outcome:
    """What a group reached, in any unit in which more is better; None if it failed, with the reason in `words`."""

    figure: float | None
    words: str = ""


Probe = Callable[[Sequence[Group]], Sequence[Outcome]]
"""Runs groups at the same time. No node is in two of them."""


@dataclass
class Found:
    """named: node -> why. between: two groups that are fast alone, but fail or miss what is expected together; that a
    large group is slower than a small one proves nothing. rounds: group -> outcome, round by round.

    likely: nodes that are in every bad group, if none could be named.
    """

    named: dict[str, str] = field(default_factory=dict)
    likely: tuple[str, ...] = ()
    between: tuple[Group, Group] | None = None
    rounds: list[dict[Group, Outcome]] = field(default_factory=list)

    @property
    def is_healthy(self) -> bool:
        return not (self.named or self.likely or self.between)


def most_rounds(count: int) -> int:
    return math.floor(math.log2(max(count, 2)) + 2)


def find(nodes: Sequence[str], probe: Probe, expected: float = 0.0, slow: float = SLOW) -> Found:
    """The nodes at fault, in at most log2(n) + 2 rounds. expected: a figure below which a group is slow, if known."""
    return _Search(tuple(nodes), probe, expected, slow).run()


class _Search:
    def __init__(self, nodes: Group, probe: Probe, expected: float, slow: float) -> None:
        self.nodes, self.probe, self.expected, self.slow = nodes, probe, expected, slow
        self.found = Found()
        self.healthy: set[str] = set()
        self.bad: list[Group] = []

    def run(self) -> Found:
        (whole,) = self._round([self.nodes])
        if len(self.nodes) < 3:
            if self._is_bad(whole):
                self.found.likely = self.nodes
            return self.found
        suspects: list[Group] = [self.nodes]
        while suspects and len(self.found.rounds) < most_rounds(len(self.nodes)):
            suspects = self._halved(suspects)
        self._conclude(whole, suspects)
        return self.found

    def _halved(self, suspects: Iterable[Group]) -> list[Group]:
        """Runs the halves of the suspects; returns those that are bad or could not run."""
        groups, waiting = self._groups([part for group in suspects for part in _halves(group)])
        if not groups:
            return []
        self._round(groups)
        self._judge_again()
        for group in self.bad:
            self._name(group)
        left = {frozenset(group) - self.healthy for group in self.bad}
        left = {one for one in left if not any(other < one for other in left)}
        left |= {frozenset(part) - self.healthy for part in waiting}
        ordered = (tuple(node for node in self.nodes if node in part) for part in left if not part <= self.found.named.keys())
        return sorted(filter(None, ordered), key=lambda part: self.nodes.index(part[0]))

    def _judge_again(self) -> None:
        """By the best group of all rounds, which may be the last one."""
        done = [(group, outcome) for round in self.found.rounds[1:] for group, outcome in round.items()]
        self.bad = [group for group, outcome in done if self._is_bad(outcome)]
        self.healthy = {node for group, outcome in done if not self._is_bad(outcome) for node in group}

    def _groups(self, parts: Sequence[Group]) -> tuple[list[Group], list[Group]]:
        """The groups to run, and the parts that have to wait: a single node needs a partner."""
        groups = [part for part in parts if len(part) > 1]
        partners = [node for node in self.nodes if node in self.healthy]
        singles = [part for part in parts if len(part) == 1]
        if not partners and not groups and len(singles) > 1:  # nothing is known to be healthy: they try each other
            seen = {frozenset(group) for group in self.bad}
            pair = next(
                ((*one, *other) for one in singles for other in singles if one < other and {*one, *other} not in seen), None
            )
            return ([pair], [part for part in singles if part[0] not in pair]) if pair else ([], [])
        waiting: list[Group] = []
        for part in singles:
            if partners:
                groups.append((*part, partners.pop()))
            else:
                waiting.append(part)
        return groups, waiting

    def _name(self, group: Group) -> None:
        """A bad group in which only one node is not known to be healthy."""
        suspects = [node for node in group if node not in self.healthy]
        if len(suspects) == 1 and suspects[0] not in self.found.named:
            partners = ", ".join(node for node in group if node != suspects[0])
            outcome = next(done[group] for done in self.found.rounds if group in done)
            reached = f"reaches {outcome.figure:.3g}" if outcome.figure is not None else f"fails ({outcome.words})"
            best = f"; the best group reaches {self._best():.3g}" if self._best() else ""
            self.found.named[suspects[0]] = f"with {partners} it {reached}{best}"

    def _conclude(self, whole: Outcome, suspects: Iterable[Group]) -> None:
        if self.found.named:
            return
        if self.bad:
            common = set.intersection(*map(set, self.bad)) - self.healthy
            left = {node for group in suspects for node in group} | {node for group in self.bad for node in group}
            self.found.likely = tuple(node for node in self.nodes if node in (common or left - self.healthy))
        elif (whole.figure is None or whole.figure < self.expected) and set(self.nodes) <= self.healthy:
            one, other = _halves(self.nodes)
            self.found.between = (one, other)

    def _round(self, groups: list[Group]) -> Sequence[Outcome]:
        outcomes = self.probe(groups)
        self.found.rounds.append(dict(zip(groups, outcomes, strict=True)))
        return outcomes

    def _best(self) -> float:
        return max((known.figure or 0.0 for done in self.found.rounds for known in done.values()), default=0.0)

    def _is_bad(self, outcome: Outcome) -> bool:
        return outcome.figure is None or outcome.figure < max(self.slow * self._best(), self.expected)


def _halves(group: Group) -> list[Group]:
    if len(group) == 1:
        return [group]
    middle = (len(group) + 1) // 2
    return [group[:middle], group[middle:]]
