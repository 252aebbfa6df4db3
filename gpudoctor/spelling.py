"""Suggestions for mistyped names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SIMILAR = 0.7  # of 1; below, suggestions surprise more often than they help


def nearest(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names most similar to `name`, best first: completions of a prefix, and corrections of typos."""
    known = list(names)
    begun = [other for other in known if name and other.startswith(name)]
    inside = [other for other in known if name and name in other]
    return tuple(dict.fromkeys(begun + difflib.get_close_matches(name, known, n=3, cutoff=_SIMILAR) + inside))[:3]


def is_typo(name: str, names: Iterable[str]) -> bool:
    """Whether one of the names is nearly the same; being a part of one does not count."""
    return bool(difflib.get_close_matches(name, list(names), n=1, cutoff=_SIMILAR))


def unknown(what: str, name: str, names: Iterable[str]) -> str:
    """One line about an unknown name, with the most similar known ones."""
    near = nearest(name, names)
    return f"unknown {what} {name!r}" + (f"; did you mean {' or '.join(near)}?" if near else "")
