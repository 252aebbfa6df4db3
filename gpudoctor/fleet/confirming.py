"""Repeats what decided against nodes before they are accused: no node is accused of what does not repeat.

What is slow is measured in turn with the rest within one session (turning.py). What fails would end such a session, and
runs in separate ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Group = tuple[str, ...]
TIMES = 2  # for what fails: it has no figure that could be compared in turn
MOST_SAID = 6


@dataclass(frozen=True)
class Outcome:
    """What a group reached, in any unit in which more is better; None if it failed, with the reason in `words`."""

    figure: float | None
    words: str = ""

    @property
    def said(self) -> str:
        return f"failed ({self.words})" if self.figure is None else f"{self.figure:.3g}"

    def misses(self, limit: float) -> bool:
        return self.figure is None or self.figure < limit


class Probe(Protocol):
    """Measures groups of nodes. No node is in two of those that run at the same time."""

    def __call__(self, groups: Sequence[Group]) -> Sequence[Outcome]:
        """At the same time, each in a separate session."""
        ...

    def in_turn(self, steps: Sequence[Sequence[Group]]) -> Sequence[Mapping[Group, float]]:
        """Step after step within one session, many times. Returns what each group reached, pass by pass; nothing if it fails."""
        ...


Verdict = Literal["bad", "mixed", "fine"]


@dataclass(frozen=True)
class Repeated:
    """suspects: what the groups of one suspect reached. rest: what the groups without any suspect reached. times: how often
    each was measured. verdict: "bad" if the suspect is slow or fails each time and the rest does not; "mixed" if it is slow with
    one partner and not with another. spread: of the rest, each time.
    """

    suspects: tuple[tuple[Group, Outcome], ...]
    rest: tuple[tuple[Group, Outcome], ...]
    limit: float
    verdict: Verdict
    times: int
    spread: tuple[float, ...] = ()

    @property
    def is_bad(self) -> bool:
        return self.verdict == "bad"

    @property
    def nodes(self) -> Group:
        """The suspects, without the nodes that are known to be healthy."""
        healthy = {node for group, _ in self.rest for node in group}
        return tuple(dict.fromkeys(node for group, _ in self.suspects for node in group if node not in healthy))

    @property
    def said(self) -> str:
        """`measured again 8 times in turn: 0.024 with n1, 0.023 with n2; nodes that are not suspected: 0.29, 0.31`."""
        (suspect, *_), several = self.nodes or ("",), len(self.nodes) > 1
        again = ", ".join(
            outcome.said if several else f"{outcome.said} with {', '.join(node for node in group if node != suspect)}"
            for group, outcome in self.suspects
        )
        rest = ", ".join(outcome.said for _, outcome in self.rest[:MOST_SAID]) + ", …" * (len(self.rest) > MOST_SAID)
        times = f"measured again {self.times} times in turn" if self.times > 1 else "measured again"
        return f"{times}: {again}" + (f"; nodes that are not suspected: {rest}" if rest else "")


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

    def verdict(each: Sequence[tuple[Group, Outcome]]) -> Verdict:
        return "bad" if all(outcome.misses(limit) for _, outcome in each) and len(reached) == len(others) else "fine"

    return [Repeated(tuple(each), tuple(others), limit, verdict(each), 1) for each in found]


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
