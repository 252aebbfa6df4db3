"""Signals that end the program, turned into SystemExit so that cleanup runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def by_signal() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit, so that cleanup inside the block runs."""
    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]  # respect nohup
    before = {number: signal.signal(number, _leave) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
    raise SystemExit(128 + number)
