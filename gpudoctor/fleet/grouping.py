"""Groups of nodes that differ from the others in the same way, those that cost most GPUs first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpudoctor.fleet import losing, majority
from gpudoctor.fleet.model import TITLES, Difference, Group, Item, Node, Problem, State
from gpudoctor.fleet.nodesets import folded
from gpudoctor.model import Action, Status

_ORDER = ("state", "problem", "figure", "version", "setting")
STATES = {State.PARTIAL: Status.WARN, State.NO_PYTHON: Status.WARN, State.INTERRUPTED: Status.WARN}
_MOST_VALUE = 60  # characters of a value in a sentence
Key = tuple[str, str, str]


def grouped(nodes: Sequence[Node], sizes: Mapping[str, int]) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """The groups, and what most nodes of a kind share. sizes: kind -> its nodes."""
    items = _items(nodes)
    by_name = {node.name: node for node in nodes}
    apart: dict[tuple[str, ...], list[Item]] = {}
    shared: dict[tuple[str, ...], list[Item]] = {}
    for item in items:
        names = tuple(item.gpus)
        where = shared if item.kind == "problem" and _is_common(names, by_name, sizes) else apart
        where.setdefault(names, []).append(item)
    _fold_settings(apart)
    groups = [_group(names, found, by_name) for names, found in apart.items()]
    common = [_group(names, found, by_name) for names, found in shared.items()]
    return tuple(sorted(groups, key=_rank)), tuple(sorted(common, key=_rank))


def _rank(group: Group) -> tuple[int, int, int, int, str]:
    status = -list(Status).index(group.status)
    return -group.lost_gpus, status, _ORDER.index(group.items[0].kind), -len(group.names), group.nodes


def _is_common(names: Sequence[str], nodes: Mapping[str, Node], sizes: Mapping[str, int]) -> bool:
    """Whether most nodes of each kind concerned have it, so that it does not set a node apart."""
    counts: dict[str, int] = {}
    for name in names:
        counts[nodes[name].kind] = counts.get(nodes[name].kind, 0) + 1
    return all(found > majority.USUAL * sizes[kind] and sizes[kind] >= majority.FEWEST for kind, found in counts.items())


def _items(nodes: Iterable[Node]) -> list[Item]:
    gpus: dict[Key, dict[str, tuple[int, ...]]] = {}
    told: dict[Key, Item] = {}
    for node in nodes:
        for key, item, of_gpus in _of_node(node):
            told.setdefault(key, item)
            held = gpus.setdefault(key, {})
            held[node.name] = tuple(sorted({*held.get(node.name, ()), *of_gpus}))
    return [Item(item.kind, item.id, _words(item, gpus[key]), item.status, item.action, gpus[key]) for key, item in told.items()]


def _of_node(node: Node) -> Iterator[tuple[Key, Item, tuple[int, ...]]]:
    if node.state is not State.ANSWERED:
        status = STATES.get(node.state, Status.FAIL)
        words = TITLES[node.state] + (f": {node.detail}" if node.detail else "")
        yield ("state", node.state.value, node.detail), Item("state", node.state.value, words, status), ()
    for problem in node.problems:
        item = Item("problem", problem.id, _of_problem(problem), problem.status, problem.action)
        yield ("problem", problem.id, ""), item, () if problem.gpu is None else (problem.gpu,)
    for difference in node.differences:
        words, value = _of_difference(difference), "" if difference.kind == "figure" else difference.value
        status = Status.PASS if difference.kind == "setting" else Status.WARN
        yield (difference.kind, difference.what, value), Item(difference.kind, difference.what, words, status), difference.gpus


def _of_problem(problem: Problem) -> str:
    is_word = re.match(r"(A|An|[A-Z][a-z]+) ", problem.title)
    return problem.title[:1].lower() + problem.title[1:] if is_word else problem.title


def _of_difference(difference: Difference) -> str:
    if difference.kind == "figure":
        assert difference.share is not None
        return f"{difference.what}: {difference.value}, {difference.share:.0%} of the median {difference.usual}"
    if difference.kind == "version":
        return f"{difference.what} {difference.value} instead of {difference.usual}"
    value, usual = (_cut(said) for said in (difference.value, difference.usual))
    return f"{_what(difference.what)}: {value} instead of {usual}"


def _what(what: str) -> str:
    """`PowerManagementLimit` of `nvml:gpu PowerManagementLimit`."""
    question, _, part = what.partition(" ")
    named = {"nvml:gpu": "", "environment": "variable ", "packages": "Python package ", "os-packages": "system package "}
    if question in named:
        return named[question] + part
    return re.sub(r"^(file|command):", "", what)


def _cut(said: str) -> str:
    return said if len(said) <= _MOST_VALUE else f"{said[:_MOST_VALUE]}…"


def _words(item: Item, gpus: Mapping[str, tuple[int, ...]]) -> str:
    """With the GPUs, if they are the same on each node."""
    numbers = set(gpus.values())
    if len(numbers) != 1 or not (found := next(iter(numbers))) or re.search(r"\bGPU \d", item.words):
        return item.words
    said = f"GPU {found[0]}" if len(found) == 1 else f"GPUs {ranges(found)}"
    return f"{said}: {item.words}"


def ranges(numbers: Sequence[int]) -> str:
    """In words, of ascending numbers."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}–{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _fold_settings(apart: dict[tuple[str, ...], list[Item]]) -> None:
    """Moves what differs only on nodes of another group to that group."""
    leading = {names for names, items in apart.items() if any(item.kind != "setting" for item in items)}
    for names in list(apart):
        if names not in leading and (home := _home(names, leading)):
            apart[home] += apart.pop(names)


def _home(names: tuple[str, ...], leading: Iterable[tuple[str, ...]]) -> tuple[str, ...] | None:
    inside = set(names)
    fitting = [other for other in leading if inside <= set(other)]
    return min(fitting, key=len) if fitting else None


def _group(names: tuple[str, ...], items: list[Item], nodes: Mapping[str, Node]) -> Group:
    ordered = sorted(items, key=_rank_of_item)
    status = max((item.status for item in items), key=list(Status).index)
    lost = sum(_lost(nodes[name], ordered) for name in names)
    return Group(folded(names), names, status, lost, tuple(ordered))


def _rank_of_item(item: Item) -> tuple[int, int, int, tuple[int, int, str]]:
    difference = Difference(item.kind if item.kind in _ORDER[2:] else "version", item.id, "", "")
    severity = -list(Action).index(item.action)
    return _ORDER.index(item.kind), -list(Status).index(item.status), severity, majority.rank(difference)


def _lost(node: Node, items: Iterable[Item]) -> int:
    """A GPU is counted in the group of what took it, not in that of a difference or of a fault elsewhere."""
    items = list(items)
    has_state = any(item.kind == "state" and item.status is Status.FAIL for item in items)
    ids = {item.id for item in items if item.kind == "problem"}
    return node.lost_gpus if has_state or _lacks_gpus(items) or losing.taken_by(node, ids) else 0


def _lacks_gpus(items: Iterable[Item]) -> bool:
    return any(item.kind == "version" and item.id == "GPUs" for item in items)
