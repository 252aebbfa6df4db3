"""Two days of a fleet: what is new, what is gone, and what got slower, with the nodes that changed alike as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpudoctor.fleet.model import TITLES, Fleet, Measured, Node, State
from gpudoctor.fleet.nodesets import folded
from gpudoctor.judging.measured.shortfalls import digits
from gpudoctor.model import Status

SCHEMA = "gpudoctor.fleet-diff/1"
ENOUGH = 0.9  # of what the same GPU reached before; two runs of one machine differ less


@dataclass(frozen=True)
class Change:
    """What changed alike on some nodes. kind: "worse", "better" or "changed". nodes: as a NodeSet."""

    kind: str
    what: str
    nodes: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """verdicts, lost_gpus: of both days. changes: what got worse first."""

    verdicts: tuple[Status, Status]
    lost_gpus: tuple[int, int]
    nodes: tuple[int, int]
    changes: tuple[Change, ...]
    schema: str = SCHEMA

    @property
    def is_same(self) -> bool:
        return not self.changes


_ORDER = ("worse", "changed", "better")


def compared(old: Fleet, new: Fleet) -> Comparison:
    before, after = ({node.name: node for node in fleet.nodes} for fleet in (old, new))
    nodes: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys((*before, *after)):
        for change in _of_node(before.get(name), after.get(name)):
            nodes.setdefault(change, []).append(name)
    changes = [Change(kind, what, folded(names), tuple(names)) for (kind, what), names in nodes.items()]
    changes.sort(key=lambda change: (_ORDER.index(change.kind), -len(change.names), change.what))
    return Comparison((old.status, new.status), (old.lost_gpus, new.lost_gpus), (old.total, new.total), tuple(changes))


def _of_node(old: Node | None, new: Node | None) -> Iterator[tuple[str, str]]:
    if old is None or new is None:
        yield "changed", "added" if old is None else "no longer there"
        return
    if old.state is not new.state:
        is_better = new.state is State.ANSWERED
        yield ("better", f"answers again; before: {TITLES[old.state]}") if is_better else ("worse", TITLES[new.state])
    if not (old.state.has_answered and new.state.has_answered):
        return
    yield from _of_problems(old, new)
    for name, value in new.versions.items():
        before = old.versions.get(name)
        if before is not None and before != value:
            yield "changed", f"{name} {before} → {value}"
    yield from _of_figures(old.figures, new.figures)


def _of_problems(old: Node, new: Node) -> Iterator[tuple[str, str]]:
    before, after = ({(each.id, each.gpu): each for each in node.problems} for node in (old, new))
    for place, problem in after.items():
        if place not in before:
            yield "worse", f"{_gpu(problem.gpu)}{problem.title} ({problem.id})"
    for place, problem in before.items():
        if place not in after:
            yield "better", f"{_gpu(problem.gpu)}no longer: {problem.title} ({problem.id})"


def _gpu(gpu: int | None) -> str:
    return "" if gpu is None else f"GPU {gpu}: "


def _of_figures(old: Iterable[Measured], new: Iterable[Measured]) -> Iterator[tuple[str, str]]:
    """The figures that got worse on a GPU; the share of the expected value tells in which direction."""
    before: Mapping[tuple[str, int | None], Measured] = {(each.what, each.gpu): each for each in old}
    for figure in new:
        known = before.get((figure.what, figure.gpu))
        if not known or not known.share or figure.share is None:
            continue
        ratio = figure.share / known.share
        if ratio < ENOUGH or ratio > 1 / ENOUGH:
            values = f"{digits(known.value)} → {digits(figure.value)} {figure.unit}"
            yield "worse" if ratio < 1 else "better", f"{_gpu(figure.gpu)}{figure.what}: {values}"
