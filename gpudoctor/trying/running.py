"""Runs a command to its end, its time limit or its goal, and keeps what it prints."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import selectors
import signal
import time
from collections.abc import Iterator
from types import FrameType

from gpudoctor.errors import UserError
from gpudoctor.trying import processes, terminal
from gpudoctor.trying.output import Output
from gpudoctor.trying.start import LONGER, REACHED, STOPPED, TIMEOUT, Goal, Ran, Start
from gpudoctor.trying.terminal import Wiring
from gpudoctor.trying.warden import Warden

CHUNK_BYTES = 1 << 16
GRACE_SECONDS = 3.0  # for a command to end after a signal, and for a Python to print where it was
QUIET_SECONDS = 0.3  # after a command has ended: how long its descendants may stay silent until their output is left
MOST_KEYS = 4096  # typed, and not yet read by the command
HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
ENDING = (signal.SIGTERM, signal.SIGHUP)
LADDER = (signal.SIGINT, signal.SIGTERM)  # ^C first: a program then often prints where it was


class Running:
    """One run. is_first: the user's own run, whose signals are passed on; in a repeat, ^C ends the run.

    ended_by: the signal that asks gpudoctor itself to end, 0 for none.
    """

    def __init__(self, start: Start, goal: Goal, wiring: Wiring, is_first: bool) -> None:
        self.ended_by = 0
        self._start = start
        self._goal = goal
        self._wiring = wiring
        self._is_first = is_first
        self._output = Output(goal.until, goal.metric)
        self._stopped = ""
        self._code: int | None = None
        self._deadline = math.inf
        self._ladder = [*LADDER]
        self._waiting: tuple[str, ...] = ()
        self._selector = selectors.DefaultSelector()

    def wait(self) -> Ran:
        """UserError if the command cannot be started."""
        with _signals() as wake, terminal.raw(self._wiring) as has_keys, self._selector:
            began = time.monotonic()
            self._deadline = began + min(self._goal.timeout or math.inf, self._goal.longer or math.inf)
            warden = self._warden = Warden(self._start, self._wiring.streams)
            is_left = False
            try:
                self._wiring.close_given()
                self._listen(wake, has_keys)
                self._watch()
                ran = self._ran(time.monotonic() - began)
                is_left = self._is_first and not ran.stopped and not self._goal.verdict(ran)
            finally:
                self._wiring.close()
                warden.close(is_left)
        return ran

    def _ran(self, seconds: float) -> Ran:
        self._output.end()
        stopped = REACHED if self._output.has_reached else self._stopped
        return Ran(
            code=0 if self._code is None else self._code,
            seconds=seconds,
            stopped=stopped,
            output=self._output.kept(),
            dropped=self._output.dropped,
            figure=self._output.figure,
            unit=self._output.unit,
            left=() if stopped else tuple(process.name for process in self._processes()),
            waiting=self._waiting,
        )

    def _processes(self) -> list[processes.Process]:
        return processes.below(self._warden.child.pid)[: processes.MOST]

    def _listen(self, wake: int, has_keys: bool) -> None:
        for source in self._wiring.sources:
            self._selector.register(source, selectors.EVENT_READ, self._copy)
        self._selector.register(self._warden.lines.fileno(), selectors.EVENT_READ, self._hear)
        self._selector.register(wake, selectors.EVENT_READ, self._pass_on)
        if has_keys:
            self._selector.register(terminal.IN, selectors.EVENT_READ, self._type)

    def _watch(self) -> None:
        while (self._code is None or self._wiring.sources) and not self._output.has_reached:
            if self._code is None and time.monotonic() >= self._deadline and not self._step_up():
                return
            left = self._deadline - time.monotonic() if self._code is None else QUIET_SECONDS
            ready = self._selector.select(None if left == math.inf else max(0.0, left))
            if not ready and self._code is not None:
                return  # what still runs keeps the output open
            for key, _ in ready:
                key.data(key.fd)

    def _hear(self, source: int) -> None:
        for message in self._warden.lines.read():
            if "refused" in message:
                raise refusal(self._start, message["refused"])
            self._code = message.get("ended", self._code)
        if self._warden.lines.ended:
            self._selector.unregister(source)
            self._code = -signal.SIGKILL if self._code is None else self._code  # the warden was killed from outside

    def _step_up(self) -> bool:
        """The time is up: a stronger signal each time. Returns whether to wait on."""
        if not self._stopped:
            is_longer = (self._goal.longer or math.inf) < (self._goal.timeout or math.inf)
            self._stopped = LONGER if is_longer else TIMEOUT
            self._waiting = tuple(map(str, self._processes()))
        if self._stopped == LONGER or not self._ladder:
            return False
        self._warden.send(self._ladder.pop(0))
        self._deadline = time.monotonic() + GRACE_SECONDS
        return True

    def _pass_on(self, source: int) -> None:
        """Signals that gpudoctor received."""
        for number in os.read(source, CHUNK_BYTES):
            if number == signal.SIGWINCH:
                self._wiring.resize()
                continue
            if number in ENDING or not self._is_first:
                self.ended_by = self.ended_by or number
                self._stopped = STOPPED
                self._deadline = time.monotonic() + GRACE_SECONDS
            self._warden.send(number)

    def _copy(self, source: int) -> None:
        """Copies what the command printed, and keeps it. If its reader has gone, the command's pipe is closed as well."""
        try:
            data = os.read(source, CHUNK_BYTES)
            self._output.take(data, source)
            self._write(self._wiring.sources[source], data)
        except OSError:  # also if the last process has closed its terminal
            data = b""
        if not data:
            self._selector.unregister(source)
            self._wiring.close_source(source)

    def _write(self, sink: int | None, data: bytes) -> None:
        while sink is not None and data:
            try:
                data = data[os.write(sink, data) :]
            except BlockingIOError:
                select.select((), (sink,), ())

    def _type(self, source: int) -> None:
        data = os.read(source, MOST_KEYS)
        if not data:
            self._selector.unregister(source)
        if self._wiring.keys is not None:
            with contextlib.suppress(OSError):
                os.write(self._wiring.keys, data)


def refusal(start: Start, number: int) -> UserError:
    """Why a command could not be started."""
    name = start.argv[0]
    if number == errno.ENOENT and "/" not in name:
        return UserError(f"{name}: command not found")
    if number == errno.ENOEXEC:
        return UserError(f"{name} is not a program: it has no #! line and is no executable for this machine")
    return UserError(f"{name} cannot be run: {os.strerror(number)}")


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """A descriptor that brings the numbers of signals. Ignored ones stay ignored, as under nohup."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    heard = [number for number in HEARD if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _nothing) for number in heard}
    waked = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    try:
        yield wake
    finally:
        signal.set_wakeup_fd(waked)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(wake)
        os.close(waker)


def _nothing(number: int, frame: FrameType | None) -> None:
    """The number arrives by the descriptor."""
