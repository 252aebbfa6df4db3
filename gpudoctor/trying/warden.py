"""A small process between gpudoctor and a command: it ends the command with all that it started, even if gpudoctor is killed.

It adopts the daemons that a command leaves behind (PR_SET_CHILD_SUBREAPER), so that they are found whatever their session.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import select
import signal
import subprocess
import termios
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from gpudoctor.trying.start import Start
from gpudoctor.worker import changed
from gpudoctor.worker.child import Channel, Child, Lines, adopt_orphans, sweep, talking

END, LEAVE = 0, 255  # bytes to the warden: end everything, or let it run; any other number is a signal for the command
ROUNDS = 8  # of killing what a killed process has just started


@dataclass(frozen=True)
class Streams:
    """File descriptors for the command. terminal: the one that becomes its controlling terminal, None if it gets none."""

    stdin: int
    stdout: int
    stderr: int
    terminal: int | None = None


@cache
def cpu_limit() -> tuple[int, int]:
    """The limit on CPU time of gpudoctor's caller. From the first call on it no longer ends gpudoctor itself."""
    limit = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (limit[1], limit[1]))
    return limit


class Warden:
    """Starts a command at once. `lines` brings {"pid"}, {"refused": errno} and {"ended": code}."""

    def __init__(self, start: Start, streams: Streams) -> None:
        cpu_limit()
        heard, self._control = os.pipe()
        ignored = [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN]
        keep = {heard, streams.stdin, streams.stdout, streams.stderr, *([] if streams.terminal is None else [streams.terminal])}

        def life(channel: Channel) -> None:
            _watch(start, streams, heard, channel, ignored)

        self.child: Child
        self.lines: Lines
        self.child, self.lines = talking(life, keep)
        os.close(heard)

    def send(self, number: int) -> None:
        with contextlib.suppress(OSError):  # it has ended
            os.write(self._control, bytes([number]))

    def close(self, is_left: bool = False) -> None:
        """Ends the command and its descendants, or leaves them running; waits until that is done."""
        self.send(LEAVE if is_left else END)
        os.close(self._control)
        if self.child.wait(ROUNDS) is None:
            self.child.killed()
        self.lines.close()


def _watch(start: Start, streams: Streams, heard: int, channel: Channel, ignored: Iterable[int]) -> None:
    """The life of the warden. A signal from a terminal is for the command."""
    adopt_orphans()
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    for key in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(key, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    try:
        process = _started(start, streams, ignored)
    except OSError as failure:
        channel.send(refused=failure.errno or errno.EINVAL)
        return
    channel.send(pid=process.pid)
    for number in {streams.stdin, streams.stdout, streams.stderr} - {0, 1, 2}:
        os.close(number)  # so that a reader notices when the command has closed them
    if _until_told(process.pid, heard, wake, channel) != LEAVE:
        for _ in range(ROUNDS):
            sweep()


def _started(start: Start, streams: Streams, ignored: Iterable[int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        start.argv,
        stdin=streams.stdin,
        stdout=streams.stdout,
        stderr=streams.stderr,
        env=dict(start.environment),
        start_new_session=True,
        preexec_fn=_in_the_child(start, streams.terminal, tuple(ignored)),
    )


def _in_the_child(start: Start, terminal: int | None, ignored: Iterable[int]) -> Callable[[], None]:
    def prepare() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        resource.setrlimit(resource.RLIMIT_CPU, cpu_limit())
        if start.change:
            changed.apply(start.change)

    return prepare


def _until_told(pid: int, heard: int, wake: int, channel: Channel) -> int:
    """Reports how the command ended, and reaps what it left; returns END or LEAVE."""
    has_ended = False
    while True:
        ready = select.select((heard, wake), (), ())[0]
        if wake in ready:
            os.read(wake, 1 << 10)
        for ended, status in _reaped():
            if ended == pid:
                has_ended = True
                channel.send(ended=os.waitstatus_to_exitcode(status))
        if heard in ready:
            for said in os.read(heard, 1 << 10) or bytes([END]):
                if said in (END, LEAVE):
                    return said
                if not has_ended:
                    with contextlib.suppress(OSError):
                        os.killpg(pid, said)


def _reaped() -> Iterable[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found
