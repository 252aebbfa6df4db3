"""Words for the types of answers, as msgspec reads them."""

from __future__ import annotations

import typing
from typing import Any

TEXT: Any = str | None
NUMBER: Any = int | float | bool | None
FLAG: Any = bool | int | None
TEXTS: Any = list[str | None] | None
_TABLE: Any = typing.TypedDict  # made from words, which the syntax for a class cannot


def record(numbers: str = "", texts: str = "", flags: str = "", **others: Any) -> Any:
    """An object with these fields, each of which may be missing or None."""
    fields = dict.fromkeys(numbers.split(), NUMBER) | dict.fromkeys(texts.split(), TEXT)
    fields |= dict.fromkeys(flags.split(), FLAG)
    return _TABLE("record", {**fields, **others}, total=False) | None


def whole(**fields: Any) -> Any:
    """An object with all of these fields, none of which is None."""
    return _TABLE("whole", fields)


def maps(to: Any) -> Any:
    """An object with any names, whose values are all of one type."""
    return dict[str, to] | None


def lists(of: Any) -> Any:
    return list[of] | None
