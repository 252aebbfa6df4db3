"""The verdict on many nodes: what most of them have in common, and groups of those that differ in the same way."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from gpudoctor.fleet import kinds, losing, majority
from gpudoctor.fleet.collected import Seen
from gpudoctor.fleet.draining import drains
from gpudoctor.fleet.figures import Columns, Figures
from gpudoctor.fleet.grouping import grouped
from gpudoctor.fleet.model import Difference, Fleet, Kind, Measured, Node, Problem, State
from gpudoctor.fleet.nodesets import folded, is_name
from gpudoctor.fleet.traits import Alike
from gpudoctor.model import Status
from gpudoctor.version import __version__

_PAIR = re.compile(r"GPU \d{1,3} (?:to|and) \d{1,3}")


def aggregated(seen: Sequence[Seen], alike: Alike) -> Fleet:
    """Each node once. alike: of the collector that saw them."""
    names = kinds.of(seen)
    nodes: dict[str, Node] = {}
    found: list[Kind] = []
    for name in dict.fromkeys(names):
        members = [node for node, kind in zip(seen, names, strict=True) if kind == name]
        kind, compared = _of_kind(name, members, alike)
        found.append(kind)
        nodes |= {node.name: node for node in compared}
    ordered = tuple(nodes[node.name] for node in seen)
    groups, common = grouped(ordered, {kind.name: kind.nodes for kind in found})
    named = [node for node in ordered if is_name(node.name)]  # others are files in a wrong place, or set as a trap
    differing = {name for group in groups for name in group.names}
    taken = sorted(filter(None, (node.taken for node in ordered)))
    return Fleet(
        version=__version__,
        status=max((group.status for group in (*groups, *common)), key=list(Status).index, default=Status.PASS),
        total=len(ordered),
        answered=sum(node.state.has_answered for node in ordered),
        agree=sum(node.name not in differing for node in ordered),
        gpus=sum(node.expected_gpus or node.gpus or 0 for node in ordered),
        lost_gpus=sum(node.lost_gpus for node in ordered),
        kinds=tuple(found),
        groups=groups,
        common=common,
        nodes=ordered,
        good=folded(node.name for node in named if not node.is_bad),
        bad=folded(node.name for node in named if node.is_bad),
        drains=drains(ordered, groups),
        first_taken=taken[0] if taken else "",
        last_taken=taken[-1] if taken else "",
    )


def _of_kind(name: str, members: Sequence[Seen], alike: Alike) -> tuple[Kind, list[Node]]:
    answered = [node for node in members if node.state.has_answered]
    common = _common([node.versions for node in answered])
    differences: dict[str, list[Difference]] = {node.name: [] for node in members}
    medians, outliers = majority.of_figures([node.figures for node in answered])
    everything = (
        majority.of_versions([node.versions for node in answered], common),
        majority.of_settings([node.alike for node in answered], alike),
        outliers,
    )
    for place, difference in (each for found in everything for each in found):
        differences[answered[place].name].append(difference)
    expected = _gpus(members)
    missing = [_missing(node, common) if node.state.has_answered else 0 for node in members]
    nodes = [
        _node(node, name, differences[node.name], expected, absent, medians)
        for node, absent in zip(members, missing, strict=True)
    ]
    return Kind(name, len(members), sum(node.gpus for node in members), common), nodes


def _common(versions: Sequence[Mapping[str, str]]) -> dict[str, str]:
    names = dict.fromkeys(name for each in versions for name in each)
    counted = {name: Counter(each[name] for each in versions if name in each) for name in names}
    found = {name: majority.usual(counts, sum(counts.values())) for name, counts in counted.items()}
    return {name: value for name, value in found.items() if value is not None}


def _gpus(members: Iterable[Seen]) -> int | None:
    """How many GPUs a node of this kind has that lists none."""
    counts = Counter(node.gpus for node in members if node.gpus)
    return max(counts, key=lambda count: (counts[count], count)) if counts else None


def _lists_none(node: Seen) -> bool:
    """Whether it has GPUs that the driver does not offer; without either answer, nothing is known."""
    return node.state is State.ANSWERED and not node.gpus and bool(node.on_bus or any(map(losing.takes, node.problems)))


def _missing(node: Seen, common: Mapping[str, str]) -> int:
    """How many GPUs are not there that were expected, that the bus has, or that most nodes of the kind have."""
    if not node.gpus and not _lists_none(node):  # it was perhaps not asked
        return 0
    of_bus = node.on_bus if any(problem.id == "gpu-missing-from-driver" for problem in node.problems) else 0
    usual = int(common.get("GPUs", "0"))
    return max((node.expected_gpus or max(of_bus, usual)) - node.gpus, 0)


def _node(
    node: Seen, kind: str, differences: list[Difference], usual: int | None, missing: int, medians: majority.Medians
) -> Node:
    gpus = node.gpus if node.state.has_answered else None
    expected = node.expected_gpus or (gpus + missing if gpus else usual)
    lost = _lost(node, max(expected or 0, gpus or 0))
    return Node(
        node.name,
        node.state,
        node.detail,
        kind,
        node.status,
        node.taken,
        gpus,
        expected,
        lost,
        max(len(lost), sum(gpu < node.gpus for gpu in lost) + missing),
        node.versions,
        tuple(_placed(problem, node.dead) for problem in node.problems),
        tuple(sorted(differences, key=majority.rank)),
        tuple(_telling(node.figures, medians)),
        node.ran,
        node.applicable,
    )


def _placed(problem: Problem, dead: Sequence[int]) -> Problem:
    """With the GPU that is dead, if the check could not say which one it is about."""
    is_its = problem.gpu is None and len(dead) == 1 and problem.area in losing.OF_ALL_GPUS and losing.takes(problem)
    return replace(problem, gpu=dead[0]) if is_its else problem


def _lost(node: Seen, gpus: int) -> tuple[int, ...]:
    """The GPUs that cannot be used: all of a node that gives no answer, but none for a file that cannot be read."""
    if not node.state.is_of_node:
        return ()
    if not node.state.has_answered or node.state is State.NO_GPU or _lists_none(node):
        return tuple(range(gpus))
    return losing.lost(node.problems, node.dead, gpus)


def _telling(figures: Figures, medians: majority.Medians) -> Iterator[Measured]:
    """The figures with an expected value; of all pairs of GPUs the worst pair of each GPU."""
    worst: dict[tuple[str, int | None], Measured] = {}
    for at, what in _expected(figures.columns):
        column, value, share = figures.columns[at], figures.values[at], figures.share(at)
        known = worst.get((what, column.gpu))
        if known is None or (share or 0) < (known.share or 0):
            median = medians.get((column.what, column.unit))
            of_median = None if not median else (median / value if column.is_less_better else value / median)
            worst[what, column.gpu] = Measured(
                what,
                column.unit,
                column.gpu,
                value,
                None if share is None else round(share, 3),
                None if of_median is None else round(of_median, 3),
            )
    yield from worst.values()


@lru_cache(maxsize=4096)
def _expected(columns: Columns) -> tuple[tuple[int, str], ...]:
    """The places of figures with an expected value, and what is shown of them."""
    return tuple(
        (at, sys.intern(_PAIR.sub("GPU to GPU", column.what))) for at, column in enumerate(columns) if column.is_expected
    )
