"""What the nodes of a kind have in common, and which of them differ."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpudoctor.comparing import topics
from gpudoctor.fleet.figures import Figures
from gpudoctor.fleet.model import Difference
from gpudoctor.fleet.traits import ANY_GPU, GPU_QUESTION, Alike
from gpudoctor.judging.measured.burning import OUTLIER, TO_Z
from gpudoctor.judging.measured.shortfalls import LOOSE, SIBLING, digits

FEWEST = 3  # nodes that can have a majority
FEWEST_FIGURES = 5  # values that can have outliers
USUAL = 0.6  # of the nodes have the same value; otherwise there is no majority
TIMES = 0.5  # of the median, for what should be short: such times depend on what the CPU does meanwhile
ABSENT = "absent"

Found = tuple[int, Difference]  # the place of a node
Place = tuple[int, "int | None"]  # of a node, and a GPU
Medians = Mapping[tuple[str, str], float]  # of a figure and its unit


def usual(counts: Counter[str], total: int) -> str | None:
    """The value that most of `total` have; None if there is no majority."""
    most = counts.most_common(1)
    return most[0][0] if total >= FEWEST and most and most[0][1] > USUAL * total else None


def of_versions(nodes: Sequence[Mapping[str, str]], common: Mapping[str, str]) -> Iterator[Found]:
    """A version that a node does not tell is no difference: it may not have been asked."""
    for place, versions in enumerate(nodes):
        for name, value in versions.items():
            if name in common and value != common[name]:
                yield place, Difference("version", name, value, common[name])


def of_settings(nodes: Sequence[Mapping[str, int]], alike: Alike) -> Iterator[Found]:
    """The parts of answers in which a node is not like the others; those of its GPUs are compared with all GPUs of the kind."""
    asked: dict[str, dict[int, list[Place]]] = {}
    for place, numbers in enumerate(nodes):
        for question, number in numbers.items():
            gpu = GPU_QUESTION.fullmatch(question)
            where = (place, int(gpu[1])) if gpu else (place, None)
            asked.setdefault(ANY_GPU if gpu else question, {}).setdefault(number, []).append(where)
    for question, by_number in asked.items():
        if len(by_number) > 1:
            yield from _of_question(question, by_number, alike)


def _of_question(question: str, by_number: Mapping[int, list[Place]], alike: Alike) -> Iterator[Found]:
    counts: dict[str, Counter[str]] = {}
    total = sum(map(len, by_number.values()))
    for number, places in by_number.items():
        for part, value in alike.parts[number].items():
            counts.setdefault(part, Counter())[value] += len(places)
    common = {}
    for part, counted in counts.items():
        counted[ABSENT] += total - sum(counted.values())
        most = usual(counted, total)
        if most is not None and counted[most] < total:
            common[part] = most
    for number, places in by_number.items():
        parts = alike.parts[number]
        for part, value in common.items():
            own = parts.get(part, ABSENT)
            if own != value:
                yield from _of_places(places, f"{question} {part}".strip(), own, value)


def _of_places(places: Iterable[Place], what: str, own: str, value: str) -> Iterator[Found]:
    gpus: dict[int, list[int]] = {}
    for place, gpu in places:
        gpus.setdefault(place, []).extend(() if gpu is None else (gpu,))
    for place, found in gpus.items():
        yield place, Difference("setting", what, own, value, tuple(sorted(found)))


class _Column(NamedTuple):
    """One figure on all nodes of a kind. parts: places of nodes that measured the same, and where the figure is in their rows."""

    is_less_better: bool
    is_expected: bool
    parts: list[tuple[list[int], list[int]]]


def of_figures(nodes: Sequence[Figures]) -> tuple[Medians, list[Found]]:
    """The medians, and the figures that are worse by more than siblings of one machine may differ, and outliers among all."""
    medians: dict[tuple[str, str], float] = {}
    found: list[Found] = []
    for key, column in _columns(nodes).items():
        values = [nodes[place].values[at] for places, row in column.parts for place in places for at in row]
        medians[key] = median = statistics.median(values)
        if median > 0 and sum(len(places) for places, _ in column.parts) >= FEWEST_FIGURES:
            found += _outliers(key, column, nodes, values, median)
    return medians, found


def _columns(nodes: Sequence[Figures]) -> dict[tuple[str, str], _Column]:
    alike: dict[int, list[int]] = {}
    for place, figures in enumerate(nodes):
        alike.setdefault(id(figures.columns), []).append(place)
    found: dict[tuple[str, str], _Column] = {}
    for places in alike.values():
        rows: dict[tuple[str, str], list[int]] = {}
        for at, column in enumerate(nodes[places[0]].columns):
            key = column.what, column.unit
            rows.setdefault(key, []).append(at)
            found.setdefault(key, _Column(column.is_less_better, column.is_expected, []))
        for key, row in rows.items():
            found[key].parts.append((places, row))
    return found


def _outliers(
    key: tuple[str, str], column: _Column, nodes: Sequence[Figures], values: Sequence[float], median: float
) -> Iterator[Found]:
    enough = TIMES if column.is_less_better else SIBLING if column.is_expected else LOOSE

    def share(value: float) -> float:
        return (median / value if value > 0 else 0.0) if column.is_less_better else value / median

    if min(map(share, (min(values), max(values)))) >= enough:
        return
    spread = statistics.median(abs(value - median) for value in values)
    what, unit = key
    for places, row in column.parts:
        for place in places:
            for at in row:
                value = nodes[place].values[at]
                if share(value) < enough and TO_Z * abs(value - median) > OUTLIER * spread:
                    gpu = nodes[place].columns[at].gpu
                    said = f"{digits(value)} {unit}", f"{digits(median)} {unit}"
                    gpus = () if gpu is None else (gpu,)
                    yield place, Difference("figure", what, *said, gpus, round(share(value), 3))


def rank(difference: Difference) -> tuple[int, int, str]:
    """Figures and versions first, then settings by topic."""
    order = {"figure": 0, "version": 1, "setting": 2}[difference.kind]
    question, _, part = difference.what.partition(" ")
    return order, topics.topic(question, part) if order == 2 else 0, difference.what
