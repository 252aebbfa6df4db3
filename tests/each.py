"""Rows of data by the hundred are one test, since each test of its own costs more than most rows: what fails is told row by row.

`each` is written as pytest.mark.parametrize is. The rows of a test share its fixtures.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

LINES = 30  # that are told of a row

Name = Callable[[Any], object]


def each(names: str | Sequence[str], rows: Iterable[Any], ids: Iterable[object] | Name | None = None) -> Callable[..., Any]:
    """The test is called with every row, even after one has failed."""
    listed = list(rows)
    called = _called(listed, ids)

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        def run(**fixtures: Any) -> None:
            try_each(lambda row: test(**_arguments(names, row), **fixtures), zip(called, listed, strict=True))

        others = [value for name, value in inspect.signature(test).parameters.items() if name not in _listed(names)]
        run.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorated


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
