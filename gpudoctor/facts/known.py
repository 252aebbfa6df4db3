"""What is good to know beside a finding, and must not cost it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from gpudoctor.model import Skip

Value = TypeVar("Value")
Other = TypeVar("Other")


@overload
def known(read: Callable[[], Value]) -> Value | None: ...
@overload
def known(read: Callable[[], Value], otherwise: Other) -> Value | Other: ...
def known(read: Callable[[], Any], otherwise: Any = None) -> Any:
    """What was read, or something else where it could not be."""
    try:
        return read()
    except Skip:
        return otherwise


def supported(read: Callable[[], Value], otherwise: Other) -> Value | Other:
    """What was read, or something else of a GPU that has no such thing; Skip where it could not be read."""
    try:
        return read()
    except Skip as skip:
        if skip.kind == Skip.UNSUPPORTED:
            return otherwise
        raise
