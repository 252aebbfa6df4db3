"""For what comes about at its own time."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(is_so: Callable[[], object], seconds: float = 20) -> bool:
    """Waits until it is so, or the time is over; whether it is so."""
    end = time.monotonic() + seconds
    while not (met := bool(is_so())) and time.monotonic() < end:
        time.sleep(0.05)
    return met
