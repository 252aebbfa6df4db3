"""Help with names that were mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that look most like `name`, best first: one that was not typed to its end, one that was mistyped."""
    known = list(names)
    begun = [other for other in known if name and other.startswith(name)]
    inside = [other for other in known if name and name in other]
    return tuple(dict.fromkeys(begun + difflib.get_close_matches(name, known, n=3, cutoff=0.5) + inside))[:3]


def unknown(what: str, name: str, names: Iterable[str]) -> str:
    """One line about a name that is not known, with the nearest that are."""
    near = nearest(name, names)
    return f"unknown {what} {name!r}" + (f"; did you mean {' or '.join(near)}?" if near else "")
