"""Two days of a fleet: what is new, what is gone, and what got slower, with the nodes that changed alike as one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.fleet.grouping import STATES, ranges
from gpudoctor.fleet.model import TITLES, Fleet, Measured, Node, Problem, State
from gpudoctor.fleet.nodesets import folded
from gpudoctor.judging.measured.shortfalls import digits
from gpudoctor.model import Status

SCHEMA = "gpudoctor.fleet-diff/1"
ENOUGH = 0.9  # of what the same GPU reached before; two runs of one machine differ less


@dataclass(frozen=True)
class Change:
    """What changed alike on some nodes. kind: "worse", "better" or "changed". nodes: as a NodeSet.

    status: fail or warn for what got that bad, and pass for the rest.
    """

    kind: str
    what: str
    nodes: str
    names: tuple[str, ...]
    status: Status = Status.PASS


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


Told = tuple[str, str, Status]  # the kind, the words and the status of a change
_ORDER = ("worse", "changed", "better")
_AMOUNTS = {"GPUs": Status.FAIL, "GPU memory": Status.WARN, "memory": Status.WARN, "CPUs": Status.WARN}


def compared(old: Fleet, new: Fleet) -> Comparison:
    before, after = ({node.name: node for node in fleet.nodes} for fleet in (old, new))
    nodes: dict[Told, list[str]] = {}
    for name in dict.fromkeys((*before, *after)):
        for change in _of_node(before.get(name), after.get(name)):
            nodes.setdefault(change, []).append(name)
    changes = [Change(kind, what, folded(names), tuple(names), status) for (kind, what, status), names in nodes.items()]
    changes.sort(key=_rank)
    return Comparison((old.status, new.status), (old.lost_gpus, new.lost_gpus), (old.total, new.total), tuple(changes))


def _rank(change: Change) -> tuple[int, int, int, str]:
    return _ORDER.index(change.kind), -list(Status).index(change.status), -len(change.names), change.what


def _of_node(old: Node | None, new: Node | None) -> Iterator[Told]:
    if old is None or new is None:
        yield "changed", "added" if old is None else "no longer there", Status.PASS
        return
    if old.state is not new.state:
        if new.state is State.ANSWERED:
            yield "better", f"answers again; before: {TITLES[old.state]}", Status.PASS
        else:
            yield "worse", TITLES[new.state], STATES.get(new.state, Status.FAIL)
    if not (old.state.has_answered and new.state.has_answered):
        return
    yield from _of_problems(old, new)
    for name, value in new.versions.items():
        before = old.versions.get(name)
        if before is not None and before != value:
            yield _of_version(name, before, value)
    yield from _of_figures(old.figures, new.figures)


def _of_version(name: str, old: str, new: str) -> Told:
    """Less of what a machine has is worse: of its memory, only if a module is missing."""
    words = f"{name} {old} → {new}"
    amounts = [re.match(r"\d+(\.\d+)?", said) for said in (old, new)]
    if name not in _AMOUNTS or not all(amounts):
        return "changed", words, Status.PASS
    before, after = (float(amount[0]) for amount in amounts if amount)
    if name.endswith("memory") and min(before, after) > ENOUGH * max(before, after):
        return "changed", words, Status.PASS
    return ("worse", words, _AMOUNTS[name]) if after < before else ("better", words, Status.PASS)


def _of_problems(old: Node, new: Node) -> Iterator[Told]:
    before, after = ({(each.id, each.gpu): each for each in node.problems} for node in (old, new))
    for problem, gpus in _new(after, before):
        yield "worse", f"{_gpus(gpus)}{problem.title} ({problem.id})", problem.status
    for problem, gpus in _new(before, after):
        yield "better", f"{_gpus(gpus)}no longer: {problem.title} ({problem.id})", Status.PASS


Place = tuple[str, int | None]


def _new(these: Mapping[Place, Problem], those: Mapping[Place, Problem]) -> Iterator[tuple[Problem, list[int]]]:
    """Those of these that the others lack, each once with its GPUs."""
    found: dict[tuple[str, bool, Status], tuple[Problem, list[int]]] = {}
    for place, problem in these.items():
        if place not in those:
            gpus = found.setdefault((problem.id, problem.gpu is None, problem.status), (problem, []))[1]
            gpus += [] if problem.gpu is None else [problem.gpu]
    yield from found.values()


def _gpus(gpus: Sequence[int]) -> str:
    if not gpus:
        return ""
    return f"GPU{'s' * (len(gpus) > 1)} {ranges(sorted(gpus))}: "


def _of_figures(old: Iterable[Measured], new: Iterable[Measured]) -> Iterator[Told]:
    """The figures that got worse on a GPU; the share of the expected value tells in which direction."""
    before: Mapping[tuple[str, int | None], Measured] = {(each.what, each.gpu): each for each in old}
    for figure in new:
        known = before.get((figure.what, figure.gpu))
        if not known or not known.share or figure.share is None:
            continue
        ratio = figure.share / known.share
        if ratio < ENOUGH or ratio > 1 / ENOUGH:
            values = f"{digits(known.value)} → {digits(figure.value)} {figure.unit}"
            kind, status = ("worse", Status.WARN) if ratio < 1 else ("better", Status.PASS)
            yield kind, f"{_gpus([] if figure.gpu is None else [figure.gpu])}{figure.what}: {values}", status
