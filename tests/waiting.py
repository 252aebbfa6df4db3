"""For what comes about at its own time: tests wait for a state, never for seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

HOPELESS_SECONDS = 120.0  # ends what will never come about; a busy machine is quicker by far


def until(is_so: Callable[[], object]) -> bool:
    """Waits until it is so; False if it does not come about."""
    end = time.monotonic() + HOPELESS_SECONDS
    while not (met := bool(is_so())) and time.monotonic() < end:
        time.sleep(0.02)
    return met


def with_enough_time(ask: Callable[[float], T], is_enough: Callable[[T], object]) -> T:
    """What is given to `ask` as a time limit is short, and on a busy machine as long as all needs that does not hang."""
    for seconds in (1, 4, 16, 64):
        found = ask(seconds)
        if is_enough(found):
            break
    return found
