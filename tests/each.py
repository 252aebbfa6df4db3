"""Rows of data by the hundred are one test, since each test of its own costs more than most rows: what fails is told row by row.

`each` and `in_parts` are written as pytest.mark.parametrize is. The rows of a test share its fixtures. Those of `in_parts` are
shared out among workers, and where tests are chosen by name, each row is a test: `pytest tests/test_machines.py -k h100`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

LINES = 30  # that are told of a row
PART = 30  # rows that are one test, unless tests are chosen by name

Name = Callable[[Any], object]


def each(names: str | Sequence[str], rows: Iterable[Any], ids: Iterable[object] | Name | None = None) -> Callable[..., Any]:
    """The test is called with every row, even after one has failed."""
    listed = list(rows)
    called = _called(listed, ids)

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        def run(**fixtures: Any) -> None:
            try_each(lambda row: test(**_arguments(names, row), **fixtures), zip(called, listed, strict=True))

        _dress(run, test, _others(test, *_listed(names)))
        return run

    return decorated


def in_parts(name: str, rows: Iterable[Any], ids: Name = str, size: int = PART) -> Callable[..., Any]:
    """The test is called with every row; conftest.py makes the parts. size: the rows of one."""
    listed = [(str(ids(row)), row) for row in rows]

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        def run(part: Sequence[tuple[str, Any]], **fixtures: Any) -> None:
            if len(part) == 1:
                test(**{name: part[0][1]}, **fixtures)
            else:
                try_each(lambda row: test(**{name: row}, **fixtures), part)

        of_part = inspect.Parameter("part", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        _dress(run, test, [of_part, *_others(test, name)])
        run.parts = (listed, size)  # type: ignore[attr-defined]
        return run

    return decorated


def parts_of(test: Callable[..., None], by_name: bool) -> tuple[list[list[tuple[str, Any]]], list[str]]:
    """The parts of the rows of a test, and their names; none for a test that was not made by in_parts."""
    rows, size = getattr(test, "parts", ([], PART))
    step = 1 if by_name else size
    parts: list[list[tuple[str, Any]]] = [rows[at : at + step] for at in range(0, len(rows), step)]
    return parts, [" to ".join(dict.fromkeys((part[0][0], part[-1][0]))) for part in parts]


def try_each(test: Callable[[Any], None], rows: Iterable[tuple[str, Any]]) -> None:
    """Rows by name: fails with those for which the test does; there must be one at least."""
    failed: dict[str, BaseException] = {}
    count = 0
    for count, (name, row) in enumerate(rows, 1):
        try:
            test(row)
        except (Exception, pytest.fail.Exception) as failure:
            failed[f"{count}. {name}"] = failure
    assert count, "there are no rows"
    if failed:
        told = "\n\n".join(f"{name}: {_told(failure)}" for name, failure in failed.items())
        raise AssertionError(f"{len(failed)} of {count} rows fail:\n\n{told}") from next(iter(failed.values()))


def _others(test: Callable[..., None], *names: str) -> list[inspect.Parameter]:
    return [value for name, value in inspect.signature(test).parameters.items() if name not in names]


def _dress(run: Callable[..., None], test: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> None:
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__


def _told(failure: BaseException) -> str:
    lines = f"{type(failure).__name__}: {failure}".splitlines()
    return "\n".join((*lines[:LINES], *["..."] * (len(lines) > LINES)))


def _called(rows: Sequence[Any], ids: Iterable[object] | Name | None) -> list[str]:
    if ids is None:
        return [str(row)[:200] for row in rows]
    return [str(ids(row)) for row in rows] if callable(ids) else [str(name) for name in ids]


def _listed(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _arguments(names: str | Sequence[str], row: Any) -> dict[str, Any]:
    return {names: row} if isinstance(names, str) else dict(zip(names, row, strict=True))
