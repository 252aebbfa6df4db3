"""Passes on the standard error of the engine's command at once, but holds back the engine's message if it refuses to start."""

from __future__ import annotations

import contextlib
import math
import os
import re
import select
import sys
import threading
import time
from typing import IO

DOCKER, PODMAN = b"docker: ", b"Error: "  # how their messages begin when nothing was started
# A program's output may begin like that too, but hardly with these words. With 126 and 127 an engine always prints one of them.
EXACT = re.compile(
    r"""
    docker:\ Error\ response\ from\ daemon
    | Error:\ .* ( \bOCI[ ] | \bcrun\b | \brunc\b | \bCDI[ ] | \bcontainer-init\b )
    """,
    re.VERBOSE,
)
NOT_STARTED = (125, 126, 127)  # exit codes of docker and podman for a failed start; a program may use them too
ASIDES = (b"WARNING: ", b"time=")  # lines that may come before the message
HINT = re.compile(rb"\s+(See|Run) '[^']* --help'[^\n]*\s*\Z")
HOLD_SECONDS = 1.0  # after a refusal the command exits; if it keeps running, the program inside printed the text
REMOVAL_SECONDS = 10.0  # docker's command may exit this late: it waits until the container is removed
JOIN_SECONDS = 0.1  # between checks whether `give_up` was called
BYTES = 1 << 16


class Relay(threading.Thread):
    """Copies a pipe to a file descriptor until its end. prefix: DOCKER or PODMAN, with which a refusal begins."""

    def __init__(self, source: IO[bytes], sink: int | None, prefix: bytes) -> None:
        super().__init__(daemon=True)
        self._source = source
        self._sink = sink
        self._prefix = prefix
        self._held = bytearray()
        self._held_seconds = 0.0
        self._is_holding = True
        self._said = b""
        self._has_ended = False
        self._is_given_up = False

    def run(self) -> None:
        with contextlib.suppress(OSError):  # the reader has closed the pipe: let the engine's command notice it too
            while data := self._read():
                if self._is_holding:
                    self._held += data
                    self._sift()
                else:
                    self._write(data)
        self._source.close()

    def finish(self, seconds: float = math.inf) -> None:
        """After the engine's command has exited: waits until all its output is written, even to a slow reader."""
        self._has_ended = True
        end = time.monotonic() + seconds
        while self.is_alive() and not self._is_given_up:
            self.join(JOIN_SECONDS)
            if time.monotonic() > end:
                self.give_up()

    def give_up(self) -> None:
        """Ends the waiting in `finish`."""
        self._is_given_up = True

    def refusal(self, code: int) -> str:
        """After the end: the engine's message if nothing was started, without docker's hint to its help."""
        said = self._said or bytes(self._held)
        if code not in NOT_STARTED or not said.startswith(self._prefix):
            return ""
        refusal = HINT.sub(b"", said).decode("utf-8", "replace").strip()
        return refusal if code == NOT_STARTED[0] or is_exact(refusal) else ""

    def release(self) -> None:
        """After the end: prints what is still held back."""
        if not self._is_given_up:
            with contextlib.suppress(OSError):
                self._let_go()

    def _read(self) -> bytes:
        source = self._source.fileno()
        while not select.select([source], [], [], HOLD_SECONDS)[0]:
            if self._has_ended:  # an ssh that docker started may keep its end open
                return b""
            if self._held:
                self._held_seconds += HOLD_SECONDS
                if self._held_seconds >= REMOVAL_SECONDS or not is_exact(self._held.decode("utf-8", "replace")):
                    self._let_go()
        return os.read(source, BYTES)

    def _sift(self) -> None:
        while self._held and not _may_begin(self._held, self._prefix):
            line, newline, rest = bytes(self._held).partition(b"\n")
            if not any(_may_begin(line, aside) for aside in ASIDES):
                self._let_go()
                return
            if not newline:
                return
            self._write(line + newline)
            self._held[:] = rest

    def _let_go(self) -> None:
        self._said = self._said or bytes(self._held)
        self._is_holding = False
        self._write(bytes(self._held))
        self._held.clear()

    def _write(self, data: bytes) -> None:
        while data and self._sink is not None:
            data = data[os.write(self._sink, data) :]


def is_exact(refusal: str) -> bool:
    """Whether only an engine prints this, so that no program has run."""
    return EXACT.match(refusal) is not None


def _may_begin(text: bytes | bytearray, beginning: bytes) -> bool:
    return text[: len(beginning)] == beginning[: len(text)]


def are_one() -> bool:
    """Whether standard output and standard error go to the same place, so that their order must be kept."""
    if sys.stdout is None or sys.stderr is None:
        return False
    with contextlib.suppress(OSError, ValueError):
        output, errors = (os.fstat(stream.fileno()) for stream in (sys.stdout, sys.stderr))
        return (output.st_dev, output.st_ino, output.st_rdev) == (errors.st_dev, errors.st_ino, errors.st_rdev)
    return False
