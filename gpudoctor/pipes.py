"""The pipes of a process that runs for a while: its input is written, and its standard error kept, by a thread each."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from typing import IO

HEAD_BYTES, TAIL_BYTES = 4 << 10, 64 << 10
SETTLE_SECONDS = 0.5  # a process has ended: time until its last words are read
CHUNK_BYTES = 1 << 16
PATIENCE_SECONDS = 5.0  # for a process that does not read its input, if no thread can wait for it


class Words(threading.Thread):
    """The first and the last that a process prints to a pipe; what lies between is read and dropped."""

    def __init__(self, source: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._source = source
        self._head = bytearray()
        self._tail = bytearray()
        self._runs = started(self)

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._source as source:
            while data := os.read(source.fileno(), CHUNK_BYTES):
                room = HEAD_BYTES - len(self._head)
                self._head += data[:room]
                self._tail += data[room:]
                del self._tail[:-TAIL_BYTES]

    def text(self) -> str:
        """What was printed so far, or everything if the process has ended."""
        if self._runs:
            self.join(SETTLE_SECONDS)
        elif not self._source.closed:  # at the limit on threads: what the pipe holds
            os.set_blocking(self._source.fileno(), False)
            self.run()
        return bytes(self._head + self._tail).decode("utf-8", "replace")


def feed(sink: IO[bytes], data: bytes, *, is_all: bool = True) -> None:
    """Writes to a process, however slowly it reads; closes the pipe if that is all."""

    def write() -> None:
        with contextlib.suppress(OSError, ValueError):
            sink.write(data)
            sink.flush()
        if is_all:
            with contextlib.suppress(OSError):
                sink.close()

    if not started(threading.Thread(target=write, daemon=True)):
        _write_within(sink, data, PATIENCE_SECONDS, is_all=is_all)


def started(thread: threading.Thread) -> bool:
    """False at the limit on threads."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def _write_within(sink: IO[bytes], data: bytes, seconds: float, *, is_all: bool) -> None:
    end = time.monotonic() + seconds
    with contextlib.suppress(OSError, ValueError):
        os.set_blocking(sink.fileno(), False)
        while data and (left := end - time.monotonic()) > 0:
            if select.select((), (sink,), (), left)[1]:
                data = data[os.write(sink.fileno(), data) :]
        if is_all:
            sink.close()
