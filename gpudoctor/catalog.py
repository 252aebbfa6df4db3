"""Finds and loads the checks: every file in `checks/<area>/` is one."""

from __future__ import annotations

import difflib
import functools
import importlib.util
from collections.abc import Iterable
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path

from gpudoctor.model import AREAS, Check, Problem


def folder(name: str) -> Path:
    """Where `checks` or `images` lies: in the installed package, else beside it in a checkout."""
    here = Path(__file__).resolve().parent
    return here / name if (here / name).is_dir() else here.parent / name


def files() -> list[Path]:
    """One for each check, in the folder of its area."""
    return sorted(folder("checks").glob("*/*.py"))


@functools.cache
def checks() -> dict[str, Check]:
    """Check id -> check, each after the checks that it needs."""
    found = {check.id: check for check in map(load, files())}
    sorter = TopologicalSorter({id: (*check.needs, *check.explained_by) for id, check in found.items()})
    sorter.prepare()
    ordered: dict[str, Check] = {}
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=lambda id: (AREAS.index(found[id].area), id))
        ordered |= {id: found[id] for id in ready}
        sorter.done(*ready)
    return ordered


def load(path: Path) -> Check:
    """The check of one file, by path: `checks` is no importable package. Its area is the folder's name."""
    spec = importlib.util.spec_from_file_location(f"gpudoctor_checks.{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    check: Check = module.CHECK
    id, area = (name.replace("_", "-") for name in (path.stem, path.parent.name))
    return replace(check, id=id, area=area, explanation=(module.__doc__ or "").strip())


def problems() -> dict[str, tuple[Check, Problem]]:
    """Problem id -> the first check that finds it and the problem; what only messages tell of belongs to the check of these."""
    from gpudoctor.knowledge import messages

    found = {problem.id: (check, problem) for check in reversed(checks().values()) for problem in check.problems}
    teller = checks().get("messages")
    return {id: (teller, problem) for id, problem in messages.problems().items()} | found if teller else found


def nearest(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that look most like `name`, best first: one that was not typed to its end, one that was mistyped."""
    known = list(names)
    begun = [other for other in known if name and other.startswith(name)]
    inside = [other for other in known if name and name in other]
    return tuple(dict.fromkeys(begun + difflib.get_close_matches(name, known, n=3, cutoff=0.5) + inside))[:3]
