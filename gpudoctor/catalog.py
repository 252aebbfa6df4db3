"""Finds and loads the checks: every file in `checks/<area>/` is a check, and so is every file in a folder that the user names."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from gpudoctor.errors import UserError
from gpudoctor.folders import shipped
from gpudoctor.model import AREAS, Check, Problem

ENTRY_POINTS = "gpudoctor.checks"
"""Installed packages offer checks in this group: the name is the check's id, the value its CHECK."""
WRITTEN = "*-[iI][nN][fF][oO]/entry_points.txt"  # of a wheel, or of an egg
OWN_AREA = "site"
_own: list[Path] = []


def files() -> list[Path]:
    """The file of each check, in the folder of its area."""
    return sorted(shipped("checks").glob("*/*.py"))


def ids() -> list[str]:
    """The ids of all checks, without loading them."""
    return [path.stem.replace("_", "-") for path in files()]


@functools.cache
def checks() -> dict[str, Check]:
    """Check id -> check, in an order in which each check follows the checks that it needs."""
    found = {check.id: check for check in map(_loaded, files())}
    for where, check in _of_others():
        if check.id in found:
            raise UserError(f"{where}: there is already a check {check.id}")
        if unknown := {*check.needs, *check.explained_by, *check.after} - {*found}:
            raise UserError(f"{where}: it needs {', '.join(sorted(unknown))}, but there is no such check")
        found[check.id] = check
    return _ordered(found)


def with_needs(names: Iterable[str]) -> dict[str, Check]:
    """The checks of gpudoctor with these ids, and all that they need, in the order of `checks`; loads no others."""
    paths = {path.stem.replace("_", "-"): path for path in files()}
    found: dict[str, Check] = {}
    queue = list(names)
    while queue:
        id = queue.pop()
        if id not in found:
            found[id] = _loaded(paths[id])
            queue += (*found[id].needs, *found[id].explained_by, *found[id].after)
    return _ordered(found)


def named(wanted: Collection[str]) -> dict[str, Check]:
    """The checks with these ids, as far as there are such; loads all only if they are not gpudoctor's own."""
    found = with_needs(wanted) if {*wanted} <= {*ids()} else checks()
    return {id: check for id, check in found.items() if id in wanted}


def _ordered(found: dict[str, Check]) -> dict[str, Check]:
    sorter = TopologicalSorter({id: (*check.needs, *check.explained_by, *check.after) for id, check in found.items()})
    try:
        sorter.prepare()
    except CycleError as cycle:
        raise UserError(f"these checks need each other: {', '.join(cycle.args[1])}") from None
    ordered: dict[str, Check] = {}
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=lambda id: (_place(found[id].area), id))
        ordered |= {id: found[id] for id in ready}
        sorter.done(*ready)
    return ordered


def add(folder: Path) -> None:
    """Adds the checks of a user: FOLDER/<area>/<name>.py, or FOLDER/<name>.py. UserError if others could change them."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    found = sorted((*folder.glob("*.py"), *folder.glob("*/*.py")))
    if not found:
        raise UserError(f"{folder} contains no check: name it <name>.py or <area>/<name>.py")
    for path in (folder, *found):
        state = path.stat()
        if state.st_mode & 0o002 or state.st_uid not in (0, os.geteuid()):
            raise UserError(f"{path} belongs to another user, or anybody can write to it: its code is not run")
    _own.extend(path for path in found if path not in _own)
    checks.cache_clear()


def _of_others() -> Iterator[tuple[str, Check]]:
    """The checks that are not gpudoctor's, each with where it comes from. UserError for one that cannot be loaded."""
    for path in _own:
        try:
            check = load(path)
        except Exception as failure:
            raise UserError(f"{path} is not a check: {type(failure).__name__}: {failure}") from None
        is_flat = path.parent.name not in AREAS
        yield str(path), _checked(str(path), replace(check, area=OWN_AREA) if is_flat else check)
    if not _is_offered():
        return
    import importlib.metadata  # with all that reads e-mail

    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        where = f"{point.dist.name if point.dist else 'a package'}: {point.value}"
        try:
            check = point.load()
            named = replace(check, id=point.name, area=check.area or OWN_AREA)
        except Exception as failure:
            raise UserError(f"{where} is not a check: {type(failure).__name__}: {failure}") from None
        yield where, _checked(where, named)


def _is_offered() -> bool:
    """Whether a package on the path may offer checks. Archives are not looked into: who has one pays for all metadata."""
    return any(Path(folder).is_file() or any(map(_may_offer, Path(folder).glob(WRITTEN))) for folder in sys.path)


def _may_offer(file: Path) -> bool:
    with suppress(OSError):
        return ENTRY_POINTS.encode() in file.read_bytes()
    return False


def _checked(where: str, check: Check) -> Check:
    if not isinstance(check, Check):
        raise UserError(f"{where} is not a check: CHECK is a {type(check).__name__}")
    return check


def _place(area: str) -> int:
    return AREAS.index(area) if area in AREAS else len(AREAS)


@functools.cache
def _loaded(path: Path) -> Check:
    return load(path)


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
    """All problems that a check can find: in its code and what that loads, and in the message tables that only it reads."""
    messages = _messages()
    of_tables = messages.problems(check.id).values() if check.id in messages.IN_ORDER else ()
    return (*check.problems, *check.more_problems(), *of_tables)


@functools.cache
def _messages() -> Any:
    """The module, loaded when it is first asked: it costs commands that judge nothing too much time."""
    from gpudoctor.knowledge import messages

    return messages


Found = dict[str, tuple[Check, Problem]]


class _Known:
    """What the checks can find, by problem. Made when it is first asked."""

    def __init__(self, checks: dict[str, Check]) -> None:
        self.checks = checks

    @functools.cached_property
    def finders(self) -> dict[str, list[Check]]:
        found: dict[str, list[Check]] = {}
        for check in self.checks.values():
            for problem in found_by(check):
                found.setdefault(problem.id, []).append(check)
        return found

    @functools.cached_property
    def problems(self) -> Found:
        messages = _messages()
        found = {problem.id: (check, problem) for check in reversed(self.checks.values()) for problem in found_by(check)}
        teller = self.checks.get(messages.TEXTS)
        return {id: (teller, problem) for id, problem in messages.problems().items()} | found if teller else found

    @functools.cached_property
    def by_id(self) -> dict[str, Problem]:
        return {id: problem for id, (_, problem) in self.problems.items()}


_latest: list[_Known] = []


def _known() -> _Known:
    every = checks()
    if not _latest or _latest[0].checks is not every:
        _latest[:] = [_Known(every)]
    return _latest[0]


def problems() -> Found:
    """Problem id -> the first check that finds it, and the problem. Problems found only in texts belong to the check of texts."""
    return _known().problems


def problems_by_id() -> Mapping[str, Problem]:
    """Problem id -> the problem."""
    return _known().by_id


def finders(problem: str, among: Mapping[str, Check] | None = None) -> list[Check]:
    """The checks that can find a problem, in their order; `among` these, which need not be in the catalog."""
    known = _known().finders.get(problem, [])
    if among is None:
        return known
    others = (check for id, check in among.items() if id not in checks())
    return [check for check in known if check.id in among] + [
        check for check in others if problem in (one.id for one in found_by(check))
    ]
