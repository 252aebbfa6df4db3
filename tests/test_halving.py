"""The node that slows a collective down is named in log2(n) + 2 rounds, and no other one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from each import each

from gpudoctor.fleet.accusing import Found
from gpudoctor.fleet.confirming import Group, Outcome
from gpudoctor.fleet.halving import find, most_rounds

FAST = 100.0


class Simulated:
    """Groups in turn are measured as at any other time."""

    passes = 4

    def __call__(self, groups: Sequence[Group]) -> Sequence[Outcome]:
        raise NotImplementedError

    def in_turn(self, steps: Sequence[Sequence[Group]]) -> list[dict[Group, float]]:
        passes = []
        for _ in range(self.passes):
            reached: dict[Group, float] = {}
            for step in steps:
                reached |= {group: outcome.figure or 0.0 for group, outcome in zip(step, self(step), strict=True)}
            passes.append(reached)
        return passes


class By(Simulated):
    def __init__(self, measure: Callable[[Group], float]) -> None:
        self.measure = measure

    def __call__(self, groups: Sequence[Group]) -> list[Outcome]:
        return [Outcome(self.measure(group)) for group in groups]


class Fabric(Simulated):
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
    for guilty in names(count)[:: max(count // 10, 1)]:
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


class Busy(Simulated):
    """Nodes that share two processors with other work. It goes up and down for all of them, slowly within a session; each group
    has its own share, and now and then a third of it. In GB/s, as recorded on network namespaces with gloo."""

    passes = 8

    def __init__(self, seed: int, slow: dict[str, float], own: float, common: float, bursts: float) -> None:
        self.slow, self.own, self.common, self.bursts = slow, own, common, bursts
        self.random, self.level, self.is_in_session = random.Random(seed), 0.0, False

    def __call__(self, groups: Sequence[Group]) -> list[Outcome]:
        kept, new = (0.8, 0.6) if self.is_in_session else (0.0, 1.0)
        self.level = kept * self.level + new * self.random.gauss(0, self.common)
        return [Outcome(min([self._of(group), *(self.slow.get(node, FAST) for node in group)])) for group in groups]

    def _of(self, group: Group) -> float:
        share = 0.3 if self.random.random() < self.bursts else 1
        return 0.3 * math.exp(self.level + self.random.gauss(0, self.own)) * share

    def in_turn(self, steps: Sequence[Sequence[Group]]) -> list[dict[Group, float]]:
        self.is_in_session = True
        found = super().in_turn(steps)
        self.is_in_session = False
        return found


@each(
    ("own", "common", "bursts", "most_missed"),
    [(0.1, 0.1, 0.0, 0.0), (0.3, 0.3, 0.0, 0.01), (0.3, 0.3, 0.1, 0.03), (0.2, 0.5, 0.25, 0.10)],
)
def test_on_busy_nodes_the_slow_one_is_named_and_no_healthy_one(
    own: float, common: float, bursts: float, most_missed: float
) -> None:
    times, wrong, missed, noise, unsure = 100, 0, 0, 0, 0
    for count in (3, 4, 8):
        for seed in range(times):
            guilty = random.Random(seed).choice(names(count))
            for slow in ({}, {guilty: 0.024}):
                found = find(names(count), Busy(seed, slow, own, common, bursts))
                accused = {*found.named, *found.likely}
                wrong += bool(accused - {*slow})
                missed += bool({*slow} - {*found.named})
                noise += bool(found.noise)
                unsure += bool(found.unsure) and not slow
                assert len(found.rounds) <= most_rounds(count)
    assert all((wrong <= 1, missed <= 3 * times * most_missed, unsure <= 3 * times * most_missed)), (wrong, missed, unsure, noise)


def test_what_does_not_repeat_accuses_nobody_and_says_what_was_seen() -> None:
    fabric = Fabric({"n5": 20.0})
    repeat = fabric.in_turn

    def in_turn(steps: Sequence[Sequence[Group]]) -> list[dict[Group, float]]:
        fabric.slow = {}
        return repeat(steps)

    fabric.in_turn = in_turn  # type: ignore[method-assign]
    found = find(names(8), fabric)
    assert (found.named, found.likely, found.is_healthy) == ({}, (), False)
    ((group, said),) = found.unsure.items()
    assert "n5" in group
    assert "measured again 4 times in turn" in said


def test_the_smallest_set_that_is_fast_only_in_halves_is_named() -> None:
    found = find(names(8), By(lambda group: 20.0 if {"n4", "n7"} <= {*group} else FAST), expected=60)
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
    probe = By(lambda group: 30.0 if len({int(node[1:]) < 4 for node in group}) > 1 else FAST)
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
