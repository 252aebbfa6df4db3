"""Repeats what decided against nodes before they are accused: no node is accused of what does not repeat.

The suspects and the rest run in turn, so that what slows all of them down for a while slows down both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

Group = tuple[str, ...]
TIMES = 2


@dataclass(frozen=True)
class Outcome:
    """What a group reached, in any unit in which more is better; None if it failed, with the reason in `words`."""

    figure: float | None
    words: str = ""

    @property
    def said(self) -> str:
        return f"failed ({self.words})" if self.figure is None else f"{self.figure:.3g}"


Probe = Callable[[Sequence[Group]], Sequence[Outcome]]
"""Runs groups at the same time. No node is in two of them."""


@dataclass(frozen=True)
class Repeated:
    """suspects: what the groups of one suspect reached, time by time. rest: what the groups without any suspect reached."""

    suspects: tuple[tuple[Group, Outcome], ...]
    rest: tuple[tuple[Group, Outcome], ...]
    limit: float

    @property
    def is_bad(self) -> bool:
        """Whether all that was repeated is slow or fails, and nothing of the rest is."""
        return not self._spoiled and all(self._is_slow(outcome) for _, outcome in self.suspects)

    @property
    def _spoiled(self) -> bool:
        return any(outcome.figure is None for _, outcome in self.rest)

    def _is_slow(self, outcome: Outcome) -> bool:
        return outcome.figure is None or outcome.figure < self.limit

    @property
    def nodes(self) -> Group:
        """The suspects, without the nodes that are known to be healthy."""
        healthy = {node for group, _ in self.rest for node in group}
        return tuple(dict.fromkeys(node for group, _ in self.suspects for node in group if node not in healthy))

    @property
    def said(self) -> str:
        """`measured again: 88.2, 30.1; the rest: 91, 90.4`."""
        again = ", ".join(outcome.said for _, outcome in self.suspects)
        rest = ", ".join(outcome.said for _, outcome in self.rest)
        return f"measured again: {again}" + (f"; nodes that are not suspected: {rest}" if rest else "")


def again(
    suspects: Sequence[Sequence[Group]], rest: Sequence[Group], probe: Probe, slow: float, best: float, expected: float
) -> list[Repeated]:
    """suspects: for each time, a group of each suspect. rest: groups without any. best: what was reached before."""
    found: list[list[tuple[Group, Outcome]]] = [[] for _ in suspects[0]]
    others: list[tuple[Group, Outcome]] = []
    for groups in suspects:
        if rest:
            others += zip(rest, probe(rest), strict=True)
        for one, each in zip(found, zip(groups, probe(groups), strict=True), strict=True):
            one.append(each)
    reached = [outcome.figure for _, outcome in others if outcome.figure is not None]
    limit = max(slow * (min(reached) if reached else best), expected)
    return [Repeated(tuple(each), tuple(others), limit) for each in found]


def paired(accused: Sequence[str], partners: Sequence[str]) -> tuple[list[list[Group]], list[Group]]:
    """Each of the accused with one partner, then with another; and pairs of partners. As many partners as accused at least."""
    suspects: list[list[Group]] = []
    for time in range(TIMES):
        turned = [partners[(place + time) % len(partners)] for place in range(len(accused))]
        suspects.append([(one, partner) for one, partner in zip(accused, turned, strict=True)])
    rest: list[Group] = [(partners[place], partners[place + 1]) for place in range(0, len(partners) - 1, 2)]
    return suspects, rest[: max(len(accused), 1)]


def ordered(partners: Collection[str], first: str) -> list[str]:
    """With the one first with which the suspect was slow before."""
    return sorted(partners, key=lambda node: node != first)
