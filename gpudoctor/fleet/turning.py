"""Compares suspects with other nodes in turn, many times within one session, so that load meets both alike.

A figure is only compared with one of the same pass, a moment away: on busy nodes the same pair can be three times as fast a
minute later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gpudoctor.fleet.confirming import Group, Outcome, Repeated, Verdict

MANY, EXCEPTIONS = 8, 2  # of so many passes, this many may differ; of fewer, none
FEW = 4  # nodes of which every pair is tried

Step = Sequence[Group]
Passes = Sequence[Mapping[Group, float]]
"""What each group reached, pass by pass, in any unit in which more is better."""


def plan(suspects: Sequence[str], partners: Sequence[str]) -> list[list[Group]]:
    """Pairs that run at the same time, step by step, with as many of them in each step as possible.

    Each suspect gets two partners if there are two, and partners get each other. At least one partner, and as many as suspects
    if they are more than four together.
    """
    if len(suspects) + len(partners) <= FEW:
        return _every_pair([*suspects, *partners])
    steps: list[list[Group]] = []
    for turn in range(2):
        turned = [*partners[turn:], *partners[:turn]]
        pairs = list(zip(suspects, turned, strict=False))
        rest = turned[len(suspects) :][: 2 * len(suspects)]
        steps.append([*pairs, *zip(rest[::2], rest[1::2], strict=False)])
    if not all(len(step) > len(suspects) for step in steps):  # all that are busy before stay busy
        steps.append([*zip(partners[::2], partners[1::2], strict=False), *zip(suspects[::2], suspects[1::2], strict=False)])
    return steps


def _every_pair(nodes: list[str]) -> list[list[Group]]:
    """By the circle method: the first stays, the others move on."""
    first, others = nodes[0], [*nodes[1:], *([""] if len(nodes) % 2 else [])]
    steps: list[list[Group]] = []
    for turn in range(len(others)):
        circle = [first, *others[turn:], *others[:turn]]
        pairs: list[Group] = [(circle[place], circle[-1 - place]) for place in range(len(circle) // 2)]
        steps.append([pair for pair in pairs if all(pair)])
    return steps


@dataclass(frozen=True)
class Judge:
    """slow: share of what others reach below which a group is slow. expected: figure below which it is slow anyway."""

    slow: float
    expected: float

    def of(self, suspects: Group, all_suspects: Sequence[str], passes: Passes) -> Repeated:
        """suspects: one node, or groups that are compared with those without any of their nodes."""
        groups = {group: median(each[group] for each in passes) for group in passes[0]}
        other = {*all_suspects} - {*suspects}
        mine = [group for group in groups if set(group) & set(suspects) and not set(group) & other]
        rest = [group for group in groups if not set(group) & set(all_suspects)]
        if not rest:  # the best one that could be without fault
            others = sorted((group for group in groups if not set(group) & set(suspects)), key=lambda group: groups[group])
            rest = others[-1:]
        reference = [median(each[group] for group in rest) if rest else 0.0 for each in passes]
        limits = [max(self.slow * one, self.expected) for one in reference]
        slow = {group: [each[group] < limit for each, limit in zip(passes, limits, strict=True)] for group in mine}
        return Repeated(
            tuple((group, Outcome(groups[group])) for group in mine),
            tuple((group, Outcome(groups[group])) for group in rest),
            median(limits),
            _verdict(list(slow.values())),
            len(passes),
            tuple(each[group] for each in passes for group in rest),
        )


def _verdict(slow: Sequence[Sequence[bool]]) -> Verdict:
    """slow: group by group, whether it was in each pass. "mixed": with one partner, but not with another."""
    mostly = [sum(each) >= len(each) - EXCEPTIONS * (len(each) // MANY) for each in slow]
    return "bad" if all(mostly) else "mixed" if any(mostly) else "fine"
