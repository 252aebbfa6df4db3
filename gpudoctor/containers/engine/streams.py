"""What the engine's command says on standard error, passed on at once, but for its own first words where it refuses to start."""

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

DOCKER, PODMAN = b"docker: ", b"Error: "  # with which they say why nothing was started
# A program may begin like that as well; these words it would hardly say. With 126 and 127 an engine always says one of them.
EXACT = re.compile(
    r"""
    docker:\ Error\ response\ from\ daemon
    | Error:\ .* ( \bOCI[ ] | \bcrun\b | \brunc\b | \bCDI[ ] | \bcontainer-init\b )
    """,
    re.VERBOSE,
)
NOT_STARTED = (125, 126, 127)  # what docker and podman say of a start that failed; a program may say so as well
ASIDES = (b"WARNING: ", b"time=")  # lines that may come before that
HINT = re.compile(rb"\s+(See|Run) '[^']* --help'[^\n]*\s*\Z")
HOLD_SECONDS = 1.0  # a refusal is followed by the end; whatever goes on was said by the program inside
REMOVAL_SECONDS = 10.0  # docker's command may end as late as that: it waits until the container is removed
JOIN_SECONDS = 0.1  # between looks whether somebody gave it up
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
        with contextlib.suppress(OSError):  # whoever reads us has gone: the engine's command is to notice as well
            while data := self._read():
                if self._is_holding:
                    self._held += data
                    self._sift()
                else:
                    self._write(data)
        self._source.close()

    def finish(self, seconds: float = math.inf) -> None:
        """After the end of the engine's command: until all that it said is written, however slow the reader is."""
        self._has_ended = True
        end = time.monotonic() + seconds
        while self.is_alive() and not self._is_given_up:
            self.join(JOIN_SECONDS)
            if time.monotonic() > end:
                self.give_up()

    def give_up(self) -> None:
        """Whoever waits in `finish` need not wait any longer."""
        self._is_given_up = True

    def refusal(self, code: int) -> str:
        """After the end: what the engine said in place of a start, without docker's hint at its manual."""
        said = self._said or bytes(self._held)
        if code not in NOT_STARTED or not said.startswith(self._prefix):
            return ""
        refusal = HINT.sub(b"", said).decode("utf-8", "replace").strip()
        return refusal if code == NOT_STARTED[0] or is_exact(refusal) else ""

    def release(self) -> None:
        """After the end: shows what is still held back."""
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
    """Whether only an engine says this, and so no program has run."""
    return EXACT.match(refusal) is not None


def _may_begin(text: bytes | bytearray, beginning: bytes) -> bool:
    return text[: len(beginning)] == beginning[: len(text)]


def are_one() -> bool:
    """Whether output and errors go to the same place, where their order must stay."""
    if sys.stdout is None or sys.stderr is None:
        return False
    with contextlib.suppress(OSError, ValueError):
        output, errors = (os.fstat(stream.fileno()) for stream in (sys.stdout, sys.stderr))
        return (output.st_dev, output.st_ino, output.st_rdev) == (errors.st_dev, errors.st_ino, errors.st_rdev)
    return False
