"""The tests that judge by all checks, run again with one more check and its machine.

It is done in a fork, which has loaded all that they need, and leaves this process as it was.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import machine
import pytest

from gpudoctor import catalog

TESTS = Path(__file__).parent
FIXTURES: dict[str, Callable[[], object]] = {
    "updated": frozenset,
    "monkeypatch": pytest.MonkeyPatch,
    "tmp_path": lambda: Path(tempfile.mkdtemp(dir=machine.MACHINES.parent)),
}
Calls = Iterator[tuple[str, Callable[[], object]]]


def said(check: Path, case: Path, names: tuple[str, ...], others: str, rows: str) -> str:
    """What fails, then how many tests were run.

    names: of the modules. others: a pattern of tests to leave out. rows: a pattern of those that stand for all in a long table.
    """
    told, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the threads of pytest-xdist: the child starts and awaits none
        child = os.fork()
    if not child:
        os.close(told)
        with contextlib.suppress(BaseException), os.fdopen(tell, "w") as stream:
            stream.write(_run(check, case, names, others, rows))
        os._exit(0)
    os.close(tell)
    with os.fdopen(told) as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return answer


def _run(check: Path, case: Path, names: tuple[str, ...], others: str, rows: str) -> str:
    found: list[str] = []
    count = 0
    try:
        _add(check, case)
        for name in names:
            for called, test in _calls(_again(name, check), rows):
                if not re.search(others, called):
                    count += 1
                    found += _failure(f"{name}.{called}", test)
    except BaseException:
        found.append(traceback.format_exc())
    return "\n".join((*found, f"{count} tests"))


def _add(check: Path, case: Path) -> None:
    files = sorted((*catalog.files(), check))
    catalog.files = lambda: files
    catalog.checks.cache_clear()
    machines = case.parent
    for folder in machine.MACHINES.iterdir():
        (machines / folder.name).symlink_to(folder)
    machine.MACHINES = machines


def _again(name: str, check: Path) -> ModuleType:
    """The module of these tests, whose tables are made when it is loaded."""
    spec = importlib.util.spec_from_file_location(f"{name}_again", TESTS / f"test_{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    known = vars(module)
    if "MODULES" in known:  # of test_layers: the others have not changed
        known["MODULES"] = {name: path for name, path in known["MODULES"].items() if path == check}
        assert known["MODULES"]
    return module


def _calls(module: ModuleType, rows: str) -> Calls:
    """The tests that need no fixtures but these."""
    for name, test in vars(module).items():
        if not name.startswith("test_") or test.__module__ != module.__name__:
            continue
        wanted = {*inspect.signature(test).parameters}
        rest = wanted - FIXTURES.keys()
        given = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
        if rest == {"part"}:
            parts = [[row] for row in test.parts[0] if re.search(rows, row[0])]
            yield from ((f"{name}[{part[0][0]}]", _call(test, wanted, part=part)) for part in parts)
        elif len(given) == 1 and rest == {given[0].args[0]}:
            yield from ((f"{name}[{value}]", _call(test, wanted, **{given[0].args[0]: value})) for value in given[0].args[1])
        elif not rest:
            yield name, _call(test, wanted)


def _call(test: Callable[..., object], wanted: set[str], **arguments: Any) -> Callable[[], object]:
    return lambda: test(**{name: make() for name, make in FIXTURES.items() if name in wanted}, **arguments)


def _failure(name: str, test: Callable[[], object]) -> list[str]:
    try:
        test()
    except (Exception, pytest.fail.Exception):
        return [f"{name}: {traceback.format_exc()}"]
    return []
