"""Answers that many machines gave alike: what is made of one is made once, and kept with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Made = TypeVar("Made")


class SharedDict(dict[str, Any]):
    """An answer, or a part of one, that nothing may change."""

    __slots__ = ("made",)


class SharedList(list[Any]):
    """Likewise."""

    __slots__ = ("made",)


def of(value: Any) -> Any:
    """The value, if it can be shared as one that can."""
    kind = {dict: SharedDict, list: SharedList}.get(type(value))
    return kind(value) if kind else value


def once(value: Any, make: Callable[[Any], Made]) -> Made:
    """`make(value)`; of a shared value only the first time. `make` reads nothing else, and nobody changes what it returns."""
    if not isinstance(value, SharedDict | SharedList):
        return make(value)
    try:
        made: dict[Callable[[Any], Any], Any] = value.made
    except AttributeError:
        made = value.made = {}
    if make not in made:
        made[make] = make(value)
    found: Made = made[make]
    return found
