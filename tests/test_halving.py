"""The node that slows a collective down is named in log2(n) + 2 rounds, and no other one."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from each import each

from gpudoctor.fleet.confirming import Group, Outcome
from gpudoctor.fleet.halving import Found, find, most_rounds

FAST = 100.0


class Fabric:
    """Groups run at the speed of their slowest node, with noise; nodes in `dead` make a group fail. across: the speed of groups
    with nodes of both halves."""

    def __init__(
        self, slow: dict[str, float] | None = None, dead: Sequence[str] = (), noise: float = 0.1, across: float = FAST
    ) -> None:
        self.slow, self.dead, self.noise, self.across = slow or {}, dead, noise, across
        self.random = random.Random(7)

    def __call__(self, groups: Sequence[Group]) -> list[Outcome]:
        nodes = [node for group in groups for node in group]
        assert len(nodes) == len(set(nodes)), "a node cannot be in two groups at once"
        assert all(len(group) > 1 for group in groups)
        return [self._of(group) for group in groups]

    def _of(self, group: Group) -> Outcome:
        if set(group) & set(self.dead):
            return Outcome(None, "timed out")
        sides = {int(node[1:]) % 2 for node in group}
        figure = min([FAST, *(self.slow.get(node, FAST) for node in group), *([self.across] if len(sides) > 1 else [])])
        return Outcome(figure * (1 - self.noise * self.random.random()))


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def check(found: Found, guilty: set[str], count: int) -> None:
    accused = set(found.named) | set(found.likely)
    assert accused == guilty, found
    assert not found.unsure
    assert found.repeated, "accused without measuring again"
    assert len(found.rounds) <= most_rounds(count)
    if len(guilty) == 1:
        assert found.all_rounds <= math.ceil(math.log2(count)) + 2


@each("count", [3, 4, 5, 7, 8, 9, 16, 31, 64])
def test_each_slow_node_is_named(count: int) -> None:
    for guilty in names(count):
        expected = 60 if count == 3 else 0  # of three nodes, two pairs can be equally slow
        check(find(names(count), Fabric({guilty: 30}), expected), {guilty}, count)


@each("count", [3, 4, 6, 8, 17, 64])
def test_each_failing_node_is_named(count: int) -> None:
    for guilty in names(count):
        check(find(names(count), Fabric(dead=[guilty])), {guilty}, count)


@each("count", [2, 3, 4, 8, 33, 128])
def test_no_healthy_node_is_accused(count: int) -> None:
    for noise in (0.0, 0.1, 0.25):
        found = find(names(count), Fabric(noise=noise))
        assert found.is_healthy, found
        assert len(found.rounds) <= 3


class Overloaded(Fabric):
    """Now and then all groups of a moment, or one of them, run at a part of their speed: the machines do something else."""

    def __init__(self, seed: int, slow: dict[str, float], all_at_once: bool) -> None:
        super().__init__(slow)
        self.random = random.Random(seed)
        self.all_at_once = all_at_once

    def __call__(self, groups: Sequence[Group]) -> list[Outcome]:
        busy = self.random.random()
        found = super().__call__(groups)
        shares = [busy if self.all_at_once else self.random.random() for _ in found]
        return [Outcome((each.figure or 0) * (0.3 if share < 0.25 else 1)) for each, share in zip(found, shares, strict=True)]


@each("all_at_once", [True, False])
def test_overload_accuses_hardly_anybody_who_is_healthy(all_at_once: bool) -> None:
    accused, unsure = 0, 0
    for seed in range(400):
        found = find(names(8), Overloaded(seed, {}, all_at_once))
        accused += bool(found.named or found.likely or found.between)
        unsure += bool(found.unsure)
    assert unsure > 5, "nothing had to be measured again"
    assert accused <= 400 * 0.03


def test_what_does_not_repeat_accuses_nobody_and_says_what_was_seen() -> None:
    fabric, asked = Fabric(), 0

    def probe(groups: Sequence[Group]) -> list[Outcome]:
        nonlocal asked
        asked += 1
        fabric.slow = {"n5": 20.0} if asked <= 4 else {}
        return fabric(groups)

    found = find(names(8), probe)
    assert (found.named, found.likely, found.is_healthy) == ({}, (), False)
    ((group, said),) = found.unsure.items()
    assert group == ("n5",)
    assert "measured again" in said


def test_the_smallest_set_that_is_fast_only_in_halves_is_named() -> None:
    def probe(groups: Sequence[Group]) -> list[Outcome]:
        return [Outcome(20.0 if {"n4", "n7"} <= set(group) else FAST) for group in groups]

    found = find(names(8), probe, expected=60)
    assert (found.named, found.likely) == ({}, ())
    assert found.between == (("n4", "n5"), ("n6", "n7")), found


def test_two_slow_nodes_in_different_halves() -> None:
    check(find(names(16), Fabric({"n1": 20, "n12": 40}), expected=60), {"n1", "n12"}, 16)


def test_two_slow_nodes_in_one_half() -> None:
    check(find(names(16), Fabric({"n1": 20, "n6": 40})), {"n1", "n6"}, 16)


def test_of_two_nodes_none_can_be_told_apart() -> None:
    found = find(names(2), Fabric({"n1": 20}), expected=60)
    assert (found.named, found.likely) == ({}, ("n0", "n1"))


def test_two_halves_that_are_fast_alone_are_named_together() -> None:
    def probe(groups: Sequence[Group]) -> list[Outcome]:
        return [Outcome(30.0 if len({int(node[1:]) < 4 for node in group}) > 1 else FAST) for group in groups]

    assert find(names(8), probe).is_healthy
    found = find(names(8), probe, expected=60)
    assert found.between == (("n0", "n1", "n2", "n3"), ("n4", "n5", "n6", "n7"))
    assert found.named == {}


def test_if_nothing_works_no_node_is_suspected() -> None:
    found = find(names(8), Fabric(dead=names(8)))
    assert (found.named, found.likely, found.unsure) == ({}, (), {})


def test_if_everything_is_slow_nobody_is_named() -> None:
    found = find(names(8), Fabric(dict.fromkeys(names(8), 20.0)), expected=60)
    assert found.named == {}
    assert set(found.likely) == set(names(8))
