"""The floors of the house: what stands on which, and what may not be known there."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from each import each
from sources import examined, nodes, parsed, text_of

from gpudoctor import catalog, folders

# From the ground up. A room is a module or a package of gpudoctor, and imports from its own floor and those below it.
FLOORS = (
    "errors version plain plain_yaml spelling folders choices compiled filling placeholders worker state screen settings",
    "model knowledge facts",
    "judging fixes",
    "checks catalog planning coverage roots seen ignoring doctor",
    "redaction lint source programs protocol bootstrap pipes leftovers pythons remembered interpreter quoting containers trying",
    "wanted needed collect collect_container measure experiment evidence files jobs",
    "comparing report codes repair start_failures fleet",
    "examining explaining checkup results why hanging resuming gating",
    "api cli",
    "__init__ __main__",
)
# These judge. Of what travels to the machine they know only values.
PURE = [
    "model",
    "knowledge",
    "facts",
    "judging",
    "fixes",
    "checks",
    "catalog",
    "planning",
    "coverage",
    "roots",
    "seen",
    "ignoring",
    "doctor",
]
VALUES = {"gpudoctor.worker.reply", "gpudoctor.worker.paths"}
NOT_PURE = {
    "ctypes",
    "fcntl",
    "select",
    "selectors",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib.request",
}

Name = tuple[str, ...]
pytestmark = examined

FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms.split()}
PACKAGE = folders.package()
SOURCES: dict[Name, Path] = {
    **{("gpudoctor", *path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")},
    **{("gpudoctor", "checks", path.parent.name, path.stem): path for path in catalog.files()},
}
MODULES: dict[Name, Path] = {name[:-1] if name[-1] == "__init__" else name: path for name, path in SOURCES.items()}


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """Line and module of every import, also of those in functions and under TYPE_CHECKING."""
    return list(_imports(text_of(path)))


def _imports(source: str) -> Iterator[tuple[int, str]]:
    for node in nodes(source, ast.Import):
        yield from ((node.lineno, alias.name) for alias in node.names)
    for whole in nodes(source, ast.ImportFrom):
        if module := whole.module:
            names = (f"{module}.{alias.name}" for alias in whole.names)
            yield from ((whole.lineno, name if tuple(name.split(".")) in MODULES else module) for name in names)


def ours(path: Path) -> Iterator[tuple[int, Name]]:
    return ((line, tuple(name.split("."))) for line, name in imports(path) if name.split(".")[0] == "gpudoctor")


def room(name: Name) -> str:
    return name[1] if len(name) > 1 else "__init__"


def test_every_room_has_a_floor() -> None:
    assert {room(name) for name in MODULES} == set(FLOOR_OF)


def test_no_import_runs_upwards() -> None:
    upwards = [
        f"{path}:{line} imports {'.'.join(other)}"
        for name, path in MODULES.items()
        for line, other in ours(path)
        if FLOOR_OF[room(other)] > FLOOR_OF[room(name)]
    ]
    assert upwards == []


def _nodes(below: Name) -> dict[Name, set[Name]]:
    """What stands directly in a package -> what of that it imports; a package within it counts as one."""
    found: dict[Name, set[Name]] = defaultdict(set)
    depth = len(below) + 1
    for name, path in MODULES.items():
        if name[: len(below)] != below or len(name) < depth:
            continue
        others = {other[:depth] for _, other in ours(path) if other[: len(below)] == below and len(other) >= depth}
        found[name[:depth]] |= others - {name[:depth]}
    return found


@each("package", sorted({name[:-1] for name in MODULES if len(name) > 1}), ids=".".join)
def test_no_two_rooms_import_each_other(package: Name) -> None:
    try:
        TopologicalSorter(_nodes(package)).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(".".join(name) for name in circle.args[1]))


def test_what_judges_touches_no_machine() -> None:
    touching = [
        f"{path}:{line} imports {name}"
        for module, path in MODULES.items()
        if room(module) in PURE
        for line, name in imports(path)
        if {name, name.split(".")[0]} & NOT_PURE or (name.startswith("gpudoctor.worker") and name not in VALUES)
    ]
    assert touching == []


def _named(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@each("name", sorted(name for name in MODULES if room(name) == "worker"), ids=".".join)
def test_what_travels_imports_the_standard_library_only(name: Name) -> None:
    """A workload imports its framework when it runs; nvidia-ml-py travels along."""
    tree = parsed(text_of(MODULES[name]))
    assert {module for module in _named(ast.walk(tree)) if module.startswith("gpudoctor") and "worker" not in module} == set()
    nodes = ast.walk(tree) if "probes" in name else iter(tree.body)
    roots = {module.split(".")[0] for module in _named(nodes)} - {"gpudoctor", "pynvml"}
    assert roots <= sys.stdlib_module_names
