"""Accuses nodes of what repeats, clears them of what was noise, and says where it is not sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpudoctor.fleet import confirming, turning
from gpudoctor.fleet.confirming import Group, Outcome, Probe, Repeated


@dataclass
class Found:
    """named: node -> why. between: two groups that are fast alone, but fail or miss what is expected together; that a
    large group is slower than a small one proves nothing. rounds: group -> outcome, round by round.

    likely: nodes that are in every bad group, if none could be named. repeated: what the last round showed, for each suspect.
    unsure: nodes of which that did not repeat, and what was seen. noise: the same of nodes among others that vary as much.
    """

    named: dict[str, str] = field(default_factory=dict)
    likely: tuple[str, ...] = ()
    between: tuple[Group, Group] | None = None
    rounds: list[dict[Group, Outcome]] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    unsure: dict[Group, str] = field(default_factory=dict)
    noise: dict[Group, str] = field(default_factory=dict)

    @property
    def all_rounds(self) -> int:
        """With the one that repeats what decided."""
        return len(self.rounds) + bool(self.repeated)

    @property
    def is_healthy(self) -> bool:
        return not (self.named or self.likely or self.between or self.unsure)


@dataclass
class Confirmation:
    """healthy: nodes of good groups. best: the highest figure so far."""

    found: Found
    probe: Probe
    healthy: Sequence[str]
    slow: float
    expected: float
    best: float

    def each_against_others(self, nodes: Sequence[str]) -> bool:
        """Of three nodes, each against the pair of the others. False if that session fails."""
        passes = self.probe.in_turn(turning.plan(nodes, ()))
        if not passes:
            return False
        judge = turning.Judge(self.slow, self.expected)
        self.found.repeated += [judge.of((node,), (node,), passes) for node in nodes]
        verdicts = dict(zip(nodes, self.found.repeated, strict=True))
        bad = {node: each for node, each in verdicts.items() if each.is_bad}
        mixed = tuple(node for node, each in verdicts.items() if each.verdict == "mixed")
        if len(bad) == len(nodes):
            self.found.likely = tuple(nodes)
        elif bad:
            self.found.named = {node: each.said for node, each in bad.items()}
        elif mixed:
            self.found.unsure[mixed] = f"slow together, but not with the other node; {verdicts[mixed[0]].said}"
        return True

    def suspects(self, nodes: Group, bad: Sequence[Group]) -> bool:
        """Each of them, with healthy nodes, in one session. bad: groups that were slow. False if that session fails."""
        passes = self.probe.in_turn(turning.plan(nodes, self.healthy))
        if not passes:
            return False
        judge = turning.Judge(self.slow, self.expected)
        found = {node: judge.of((node,), nodes, passes) for node in nodes}
        self.found.named = {node: each.said for node, each in found.items() if each.is_bad}
        self.found.repeated += [each for node, each in found.items() if each.verdict != "fine"]
        for node, each in found.items():
            if each.verdict == "mixed":
                self._doubt((node,), each.said, each)
        doubted = {*self.found.named, *(node for group in self.found.unsure for node in group)}
        for group in bad:
            left = tuple(node for node in nodes if node in group)
            if left and not doubted & {*group}:
                each = judge.of(left, nodes, passes)
                self.found.repeated.append(each)
                self._doubt(left, f"{self._reached(group)}; {each.said}", each, self._stood_out(group))
                doubted |= {*left}
        return True

    def _reached(self, group: Group) -> str:
        outcome = next(done[group] for done in self.found.rounds if group in done)
        return f"a group with {'them' if len(group) > 2 else 'it'} reached {outcome.said}, and the best one {self.best:.3g}"

    def nodes(self, decided: Mapping[str, Group]) -> None:
        """decided: suspect -> the group in which it was slow or failed."""
        named, self.found.named = self.found.named, {}
        reached = {group: outcome for done in self.found.rounds for group, outcome in done.items()}
        partners = [node for node in self.healthy if node not in named]
        failed = [node for node in named if reached[decided[node]].figure is None]
        slow = [node for node in named if node not in failed]
        for node, repeated in zip(slow, self._each(slow, partners), strict=True):
            if repeated:
                self._say_of(node, named[node], repeated, self._stood_out(decided[node]))
            else:
                failed.append(node)
        while failed:
            suspects, failed = failed[: len(partners)], failed[len(partners) :]
            first = next(node for node in reversed(decided[suspects[0]]) if node != suspects[0])
            groups, rest = confirming.paired(suspects, confirming.ordered(partners, first))
            for node, repeated in zip(suspects, self._again(groups, rest), strict=True):
                self._say_of(node, named[node], repeated)

    def set(self, likely: Group, groups: Sequence[Group]) -> None:
        """groups: the bad ones with any of them."""
        partners = tuple(node for node in self.healthy if node not in likely)
        tried = [groups[-1 - time % len(groups)] for time in range(confirming.TIMES)]
        reached = {group: outcome for done in self.found.rounds for group, outcome in done.items()}
        if any(reached[group].figure is None for group in tried):
            (found,) = self._again([[group] for group in tried], [partners] if len(partners) > 1 else [])
        else:
            alone = {node: one for node, one in zip(likely, self._each(likely, partners), strict=True) if one and one.is_bad}
            if alone:
                self.found.likely = ()
                self.found.named = {node: one.said for node, one in alone.items()}
                return
            steps = [*([group] for group in dict.fromkeys(tried)), *_together(partners[: len(tried[0])])]
            found = next(iter(self._in_turn(steps, [likely])), None) or self._again([[group] for group in tried], [])[0]
        if not found.is_bad:
            self.found.likely = ()
            self._doubt(likely, f"slow or failing together; {found.said}", found)

    def halves(self, one: Group, other: Group) -> None:
        """By what is expected alone: a large group may be slower than a small one."""
        alone = [part for part in (one, other) if len(part) > 1]
        (repeated,) = self._again([[(*one, *other)]] * confirming.TIMES, alone)
        together, apart = (
            [each.misses(self.expected) for _, each in outcomes] for outcomes in (repeated.suspects, repeated.rest)
        )
        if not all(together) or any(apart):
            self.found.between = None
            self.found.unsure[(*one, *other)] = f"slower together than in halves; {repeated.said}"

    def _each(self, suspects: Sequence[str], partners: Sequence[str]) -> list[Repeated | None]:
        """Suspects one by one, with partners; None for those whose session fails."""
        if not partners:
            return [None] * len(suspects)
        found: list[Repeated | None] = []
        most = max(len(partners), turning.FEW - len(partners))
        for place in range(0, len(suspects), most):
            part = suspects[place : place + most]
            found += self._in_turn(turning.plan(part, partners), [(node,) for node in part]) or [None] * len(part)
        return found

    def _say_of(self, node: str, why: str, repeated: Repeated, stood_out: bool = True) -> None:
        if repeated.is_bad:
            self.found.named[node] = f"{why}; {repeated.said}"
        else:
            self._doubt((node,), f"{why}; {repeated.said}", repeated, stood_out)

    def _stood_out(self, group: Group) -> bool:
        """Against groups that ran at the same time, if there were any."""
        done = next(done for done in self.found.rounds if group in done)
        others = [outcome.figure or 0.0 for other, outcome in done.items() if other != group]
        return not others or done[group].misses(self.slow * max(others))

    def _doubt(self, nodes: Group, why: str, repeated: Repeated, stood_out: bool = True) -> None:
        """Once slow is noise where nodes that nothing points to vary as much as that, or were as slow at the same time."""
        suspects = {*nodes, *self.found.named}
        before = [
            outcome.figure
            for done in self.found.rounds
            for group, outcome in done.items()
            if len(group) == len(repeated.suspects[0][0]) and not suspects & {*group} and outcome.figure is not None
        ]
        known = [*before, *repeated.spread]
        lowest, highest = min(known, default=0.0), max(known, default=0.0)
        varies = lowest < self.slow * highest or not stood_out
        if repeated.verdict == "fine" and repeated.times > 1 and varies:
            self.found.noise[nodes] = f"{why}; the others vary from {lowest:.3g} to {highest:.3g}"
        else:
            self.found.unsure[nodes] = why

    def _in_turn(self, steps: Sequence[Sequence[Group]], suspects: Sequence[Group]) -> list[Repeated]:
        """Nothing if that session fails."""
        passes = self.probe.in_turn(steps)
        if not passes:
            return []
        judge = turning.Judge(self.slow, self.expected)
        every = [node for group in suspects for node in group]
        found = [judge.of(group, every, passes) for group in suspects]
        self.found.repeated += found
        return found

    def _again(self, suspects: Sequence[Sequence[Group]], rest: Sequence[Group]) -> list[Repeated]:
        found = confirming.again(suspects, rest, self.probe, self.slow, self.best, self.expected)
        self.found.repeated += found
        return found


def _together(group: Group) -> list[list[Group]]:
    return [[group]] if len(group) > 1 else []
