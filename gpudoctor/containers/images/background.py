"""Work in threads that nothing waits for: neither a deadline nor the end of the program."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def started(work: Callable[[], T]) -> Future[T]:
    """The result of `work` to come. Not ThreadPoolExecutor: its threads are waited for at the end, and ^C has to come twice."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as failure:
            future.set_exception(failure)

    threading.Thread(target=run, daemon=True).start()
    return future
