"""Finds the nodes that make a collective slow or fail: the set is halved, and groups run side by side, until one is left.

As soon as there is a healthy node for each suspect, all of them are compared in one session. What decided is repeated in any
case: no node is accused of what does not repeat.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gpudoctor.fleet.accusing import Confirmation, Found
from gpudoctor.fleet.confirming import Group, Outcome, Probe

SLOW = 0.7  # of the best group: what is below is slow


def most_rounds(count: int) -> int:
    """Without the one that repeats."""
    return math.floor(math.log2(max(count, 2)) + 2)


def find(nodes: Sequence[str], probe: Probe, expected: float = 0.0, slow: float = SLOW) -> Found:
    """The nodes at fault, in at most log2(n) + 2 rounds and one that repeats what decided; slow ones in three rounds, if half of
    the nodes are healthy.

    expected: a figure below which a group is slow, if known.
    """
    return _Search(tuple(nodes), probe, expected, slow).run()


class _Search:
    def __init__(self, nodes: Group, probe: Probe, expected: float, slow: float) -> None:
        self.nodes, self.probe, self.expected, self.slow = nodes, probe, expected, slow
        self.found = Found()
        self.healthy: set[str] = set()
        self.bad: list[Group] = []
        self.decided: dict[str, Group] = {}

    def run(self) -> Found:
        if self._search():
            return self.found
        found, confirm = self.found, self._confirmation()
        doubts = [*found.unsure, *found.noise]
        if found.named:
            confirm.nodes(self.decided)
        elif found.between:
            confirm.halves(*found.between)
        elif found.likely:
            confirm.set(found.likely, [group for group in self.bad if set(found.likely) & set(group)] or [self.nodes])
        if found.named or found.likely or found.between:  # which explain what was in doubt before
            for nodes in doubts:
                found.unsure.pop(nodes, None)
                found.noise.pop(nodes, None)
        return found

    def _confirmation(self) -> Confirmation:
        healthy = [node for node in self.nodes if node in self.healthy]
        return Confirmation(self.found, self.probe, healthy, self.slow, self.expected, self._best())

    def _search(self) -> bool:
        """Whether nothing is left to confirm."""
        (whole,) = self._round([self.nodes])
        if len(self.nodes) < 3:
            if self._is_bad(whole):
                self.found.likely = self.nodes
            return False
        if len(self.nodes) == 3 and whole.figure is not None and self._confirmation().each_against_others(self.nodes):
            return True
        suspects: list[Group] = [self.nodes]
        is_compared = False
        while suspects and len(self.found.rounds) < most_rounds(len(self.nodes)):
            suspects = self._halved(suspects)
            if not is_compared and (nodes := self._comparable(suspects)):
                is_compared = True
                if self._confirmation().suspects(nodes, self.bad) and (self.found.named or not self.expected):
                    return True
        self._conclude(suspects)
        return False

    def _comparable(self, suspects: Iterable[Group]) -> Group:
        """The suspects, if each can run with a healthy node, and none of them fails."""
        left = {node for group in suspects for node in group} | self.found.named.keys()
        reached = {group: outcome for done in self.found.rounds for group, outcome in done.items()}
        fails = any(reached[group].figure is None for group in self.bad)
        return () if fails or len(left) > len(self.healthy) else tuple(node for node in self.nodes if node in left)

    def _halved(self, suspects: Iterable[Group]) -> list[Group]:
        """Runs the halves of the suspects; returns those that are bad or could not run."""
        groups, waiting = self._groups([part for group in suspects for part in _halves(group)])
        if not groups:
            return []
        self._round(groups)
        self._judge_again()
        if self._all_are_fast_together():
            return []
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

    def _all_are_fast_together(self) -> bool:
        """Then none of them is slow, and halves that were had other work at that time."""
        (whole,) = self.found.rounds[0].values()
        failed = any(outcome.figure is None for done in self.found.rounds for outcome in done.values())
        if is_fast := not failed and not self._is_bad(whole):
            self.healthy, self.bad, self.found.named = {*self.nodes}, [], {}
        return is_fast

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
            self.decided[suspects[0]] = group

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
        together = [group for group, outcome in done if outcome.misses(self.expected) and self.healthy >= set(group)]
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
