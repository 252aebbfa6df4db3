"""Optional facts: a finding mentions them if available and does not fail without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from gpudoctor.facts.guarded import WRONG
from gpudoctor.model import Skip

Value = TypeVar("Value")
Other = TypeVar("Other")


@overload
def known(read: Callable[[], Value]) -> Value | None: ...
@overload
def known(read: Callable[[], Value], otherwise: Other) -> Value | Other: ...
def known(read: Callable[[], Any], otherwise: Any = None) -> Any:
    """The value, or `otherwise` if it could not be read."""
    try:
        return read()
    except (Skip, *WRONG):
        return otherwise


def supported(read: Callable[[], Value], otherwise: Other) -> Value | Other:
    """The value, or `otherwise` if the GPU does not support it; Skip if it could not be read."""
    try:
        return read()
    except Skip as skip:
        if skip.kind == Skip.UNSUPPORTED:
            return otherwise
        raise
