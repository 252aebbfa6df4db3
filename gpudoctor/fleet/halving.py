"""Finds the nodes that make a collective slow or fail: the set is halved, and groups run side by side, until one is left.

What decided is then repeated, and no node is accused of what does not repeat.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gpudoctor.fleet import confirming
from gpudoctor.fleet.confirming import Group, Outcome, Probe, Repeated

SLOW = 0.7  # of the best group: what is below is slow


@dataclass
class Found:
    """named: node -> why. between: two groups that are fast alone, but fail or miss what is expected together; that a
    large group is slower than a small one proves nothing. rounds: group -> outcome, round by round.

    likely: nodes that are in every bad group, if none could be named. repeated: what the last round showed, for each suspect.
    unsure: nodes of which that did not repeat, and what was seen.
    """

    named: dict[str, str] = field(default_factory=dict)
    likely: tuple[str, ...] = ()
    between: tuple[Group, Group] | None = None
    rounds: list[dict[Group, Outcome]] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    unsure: dict[Group, str] = field(default_factory=dict)

    @property
    def all_rounds(self) -> int:
        """With the one that repeats what decided."""
        return len(self.rounds) + bool(self.repeated)

    @property
    def is_healthy(self) -> bool:
        return not (self.named or self.likely or self.between or self.unsure)


def most_rounds(count: int) -> int:
    """Without the one that repeats."""
    return math.floor(math.log2(max(count, 2)) + 2)


def find(nodes: Sequence[str], probe: Probe, expected: float = 0.0, slow: float = SLOW) -> Found:
    """The nodes at fault, in at most log2(n) + 2 rounds and one that repeats what decided.

    expected: a figure below which a group is slow, if known.
    """
    return _Search(tuple(nodes), probe, expected, slow).run()


class _Search:
    def __init__(self, nodes: Group, probe: Probe, expected: float, slow: float) -> None:
        self.nodes, self.probe, self.expected, self.slow = nodes, probe, expected, slow
        self.found = Found()
        self.healthy: set[str] = set()
        self.bad: list[Group] = []
        self.partner: dict[str, str] = {}

    def run(self) -> Found:
        self._search()
        if self.found.named:
            self._confirm_nodes()
        elif self.found.between:
            self._confirm_halves(*self.found.between)
        elif self.found.likely:
            self._confirm_set(self.found.likely)
        return self.found

    def _search(self) -> None:
        (whole,) = self._round([self.nodes])
        if len(self.nodes) < 3:
            if self._is_bad(whole):
                self.found.likely = self.nodes
            return
        suspects: list[Group] = [self.nodes]
        while suspects and len(self.found.rounds) < most_rounds(len(self.nodes)):
            suspects = self._halved(suspects)
        self._conclude(suspects)

    def _confirm_nodes(self) -> None:
        named, self.found.named = self.found.named, {}
        partners = [node for node in self.nodes if node in self.healthy and node not in named]
        waiting = list(named)
        while waiting:
            accused, waiting = waiting[: len(partners)], waiting[len(partners) :]
            suspects, rest = confirming.paired(accused, confirming.ordered(partners, self.partner[accused[0]]))
            for node, repeated in zip(accused, self._again(suspects, rest), strict=True):
                if repeated.is_bad:
                    self.found.named[node] = f"{named[node]}; {repeated.said}"
                else:
                    self.found.unsure[node,] = f"{named[node]}; {repeated.said}"

    def _confirm_halves(self, one: Group, other: Group) -> None:
        alone = [part for part in (one, other) if len(part) > 1]
        (repeated,) = self._again([[(*one, *other)]] * confirming.TIMES, alone)
        together, apart = ([self._misses(each) for _, each in outcomes] for outcomes in (repeated.suspects, repeated.rest))
        if not all(together) or any(apart):
            self.found.between = None
            self.found.unsure[(*one, *other)] = f"slower together than in halves; {repeated.said}"

    def _misses(self, outcome: Outcome) -> bool:
        """By what is expected alone: a large group may be slower than a small one."""
        return outcome.figure is None or outcome.figure < self.expected

    def _confirm_set(self, likely: Group) -> None:
        partners = tuple(node for node in self.nodes if node in self.healthy and node not in likely)
        groups = [group for group in self.bad if set(likely) & set(group)] or [self.nodes]
        suspects = [[groups[-1 - time % len(groups)]] for time in range(confirming.TIMES)]
        (repeated,) = self._again(suspects, [partners] if len(partners) > 1 else [])
        if not repeated.is_bad:
            self.found.likely = ()
            self.found.unsure[likely] = f"slow or failing together; {repeated.said}"

    def _again(self, suspects: Sequence[Sequence[Group]], rest: Sequence[Group]) -> list[Repeated]:
        found = confirming.again(suspects, rest, self.probe, self.slow, self._best(), self.expected)
        self.found.repeated += found
        return found

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
        groups: list[Group] = []
        waiting: list[Group] = []
        for part in (part for part in parts if len(part) > 1):  # results that contradict each other can leave parts that overlap
            is_apart = not set(part) & {node for group in groups for node in group}
            (groups if is_apart else waiting).append(part)
        partners = [node for node in self.nodes if node in self.healthy]
        taken = {node for group in groups for node in group}
        singles = [part for part in dict.fromkeys(parts) if len(part) == 1 and not taken & set(part)]
        if not partners and not groups and len(singles) > 1:  # nothing is known to be healthy: they try each other
            seen = {frozenset(group) for group in self.bad}
            pair = next(
                ((*one, *other) for one in singles for other in singles if one < other and {*one, *other} not in seen), None
            )
            return ([pair], [part for part in singles if part[0] not in pair]) if pair else ([], [])
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
            self.partner[suspects[0]] = next(node for node in reversed(group) if node != suspects[0])

    def _conclude(self, suspects: Iterable[Group]) -> None:
        if self.found.named:
            return
        if bad := [group for group in self.bad if not self.healthy >= set(group)]:
            common = set.intersection(*map(set, bad)) - self.healthy
            left = {node for group in (*suspects, *bad) for node in group} - self.healthy
            likely = tuple(node for node in self.nodes if node in (common or left))
            if self._best() or likely != self.nodes:  # if nothing ever works, nothing points to one of them
                self.found.likely = likely
            return
        done = [(group, outcome) for each in self.found.rounds for group, outcome in each.items()]
        together = [group for group, outcome in done if self._misses(outcome) and self.healthy >= set(group)]
        if together:
            one, other = _halves(min(together, key=len))
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
