"""Visits all texts of a snapshot: questions, replies and their details, keys of tables, baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from gpudoctor.model import Reply, Snapshot

_NUMBERS = frozenset({int, float, bool, type(None)})
PARTS = ("replies", "measured", "host", "baseline", "ignored", "experiments", "expectation", "counters")


def strings(snapshot: Snapshot) -> list[str]:
    """Each text once, in order of occurrence."""
    found: dict[str, None] = {}
    for part in PARTS:
        _gather(getattr(snapshot, part), found)
    return list(found)


def _gather(value: Any, found: dict[str, None]) -> None:
    kind = type(value)
    if kind is dict:
        for key, held in value.items():
            found[key] = None
            if type(held) not in _NUMBERS:
                _gather(held, found)
    elif kind is str:
        found[value] = None
    elif kind is list or kind is tuple:
        for held in value:
            _gather(held, found)
    elif kind is Reply:
        _gather(value.value, found)
        found[value.detail] = None


def walked(snapshot: Snapshot, change: Callable[[str], str]) -> Snapshot:
    """Changes every text; if two keys become equal, both values are kept and the second key gets a number."""
    done = _Changed(change)
    return replace(snapshot, **{part: _walked(getattr(snapshot, part), done) for part in PARTS})


def changed(value: Any, change: Callable[[str], str]) -> Any:
    """Plain data, with every text in it changed."""
    return _walked(value, _Changed(change))


class _Changed(dict[str, str]):
    """Text -> changed text."""

    def __init__(self, change: Callable[[str], str]) -> None:
        super().__init__()
        self._change = change

    def __missing__(self, text: str) -> str:
        self[text] = self._change(text)
        return self[text]


def _walked(value: Any, done: _Changed) -> Any:
    kind = type(value)
    if kind is str:
        return done[value]
    if kind is dict:
        return _table(value, done)
    if kind is list or kind is tuple:
        return kind([_walked(held, done) for held in value])
    if kind is Reply:
        return Reply(value.status, _walked(value.value, done), done[value.detail], value.seconds)
    return value


def _table(table: dict[str, Any], done: _Changed) -> dict[str, Any]:
    """Fast path: most of a snapshot is small tables of numbers."""
    new: dict[str, Any] = {}
    for key, value in table.items():
        kind = type(value)
        if kind not in _NUMBERS:
            value = done[value] if kind is str else _walked(value, done)
        new[done[key]] = value
    return new if len(new) == len(table) else dict(_apart(table, done))


def _apart(table: dict[str, Any], done: _Changed) -> Iterator[tuple[str, Any]]:
    seen: Counter[str] = Counter()
    for key, value in table.items():
        name = done[key]
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}#{seen[name]}", _walked(value, done)
