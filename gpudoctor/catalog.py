"""Finds and loads the checks: every file in `checks/<area>/` is a check."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path

from gpudoctor.folders import shipped
from gpudoctor.model import AREAS, Check, Problem


def files() -> list[Path]:
    """The file of each check, in the folder of its area."""
    return sorted(shipped("checks").glob("*/*.py"))


@functools.cache
def checks() -> dict[str, Check]:
    """Check id -> check, in an order in which each check follows the checks that it needs."""
    found = {check.id: check for check in map(load, files())}
    sorter = TopologicalSorter({id: (*check.needs, *check.explained_by, *check.after) for id, check in found.items()})
    sorter.prepare()
    ordered: dict[str, Check] = {}
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=lambda id: (AREAS.index(found[id].area), id))
        ordered |= {id: found[id] for id in ready}
        sorter.done(*ready)
    return ordered


def load(path: Path) -> Check:
    """The check of one file, loaded by path because `checks` is not an importable package. Its area is the folder's name."""
    spec = importlib.util.spec_from_file_location(f"gpudoctor_checks.{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    check: Check = module.CHECK
    id, area = (name.replace("_", "-") for name in (path.stem, path.parent.name))
    return replace(check, id=id, area=area, explanation=(module.__doc__ or "").strip())


def found_by(check: Check) -> tuple[Problem, ...]:
    """All problems that a check can find: in its code, and in the message tables that only it reads."""
    from gpudoctor.knowledge import messages

    by_messages = messages.problems(check.id) if check.id in messages.IN_ORDER else {}
    return (*check.problems, *by_messages.values())


def problems() -> dict[str, tuple[Check, Problem]]:
    """Problem id -> the first check that finds it, and the problem. Problems found only in texts belong to the check of texts."""
    from gpudoctor.knowledge import messages

    found = {problem.id: (check, problem) for check in reversed(checks().values()) for problem in found_by(check)}
    teller = checks().get(messages.TEXTS)
    return {id: (teller, problem) for id, problem in messages.problems().items()} | found if teller else found
