"""Being told to end: as an exit, so that on the way out everything is tidied up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def by_signal() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit, so that what is inside tidies up after itself."""
    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]  # nohup stays nohup
    before = {number: signal.signal(number, _leave) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)  # a second one must not cut the tidying up short
    raise SystemExit(128 + number)
