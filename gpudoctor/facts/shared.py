"""Answers that many machines gave alike: what is made of one is made once, and kept with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Made = TypeVar("Made")


class SharedDict(dict[str, Any]):
    """An answer, or a part of one, that nothing may change."""

    __slots__ = ("made",)
    made: dict[Any, Any]


class SharedList(list[Any]):
    """Likewise."""

    __slots__ = ("made",)
    made: dict[Any, Any]


def of(value: Any) -> Any:
    """The value, if it can be shared as one that can."""
    if type(value) is dict:
        return SharedDict(value)
    return SharedList(value) if type(value) is list else value


def once(value: Any, make: Callable[[Any], Made]) -> Made:
    """`make(value)`; of a shared value only the first time. `make` reads nothing else, and what it returns is never changed."""
    if not isinstance(value, SharedDict | SharedList):
        return make(value)
    try:
        made = value.made
    except AttributeError:
        made = value.made = {}
    if make not in made:
        made[make] = make(value)
    found: Made = made[make]
    return found
