"""A child process: forks it, talks to it, ends it with everything it started, and reports how it died."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

GRACE_SECONDS = 0.3  # time for a killed process to exit; in a driver call it may never exit
POLL_SECONDS = 0.002
MOST_DESCRIPTORS = 256  # more than a worker ever has open
STUCK = "it cannot be killed: it is stuck in the kernel (state D)"
SLOW = "killed, but it has not ended yet"
MOST_LINE_BYTES = 64 << 20
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Channel:
    """The sending end: lines of JSON, each after the marker, if there is one."""

    def __init__(self, descriptor: int, marker: str = "") -> None:
        self.descriptor = descriptor
        self.marker = marker.encode()

    def send(self, **message: Any) -> None:
        data = self.marker + json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        while data:
            data = data[os.write(self.descriptor, data) :]


class Lines:
    """The receiving end of a channel. Works with select.

    What is not a message after the marker is left out: a library may write to a descriptor that is not its own.
    """

    def __init__(self, descriptor: int, marker: str = "") -> None:
        self.descriptor = descriptor
        self.marker = marker.encode()
        self.ended = False
        self._rest = b""

    def fileno(self) -> int:
        return self.descriptor

    def read(self) -> list[dict[str, Any]]:
        """The messages since the last call. Blocks until one arrives; sets `ended` when no more can come."""
        data = os.read(self.descriptor, 1 << 16)
        self.ended = not data
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) < MOST_LINE_BYTES else b""
        return [message for message in map(self._message, lines) if message]

    def _message(self, line: bytes) -> dict[str, Any] | None:
        try:
            said = json.loads(line[line.index(self.marker) + len(self.marker) :])
        except (ValueError, RecursionError):
            return None
        return said if isinstance(said, dict) else None

    def close(self) -> None:
        os.close(self.descriptor)


class Child:
    """A forked process in its own session. Its pid is not reused until `poll` has reported how it ended."""

    def __init__(self, life: Callable[[], None]) -> None:
        self.manner: str | None = None
        # our signal handlers are not meant for the child
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        try:
            with warnings.catch_warnings():  # a framework may have threads by now; fork anyway
                warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
                self.pid = os.fork()
            if self.pid == 0:
                _live(life, before)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def poll(self) -> str | None:
        """How it ended: `killed by SIGSEGV`, `exit code 3`, "" for a clean exit; None while it runs."""
        if self.manner is None and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            self.kill()  # kills the processes that it left behind
            self.manner = _manner_of_death(os.waitpid(self.pid, 0)[1])
        return self.manner

    def wait(self, seconds: float = GRACE_SECONDS) -> str | None:
        """Like poll, but waits up to `seconds`."""
        end = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        return self.manner

    def kill(self) -> None:
        """Sends SIGKILL to it and to its process group."""
        if self.manner is None:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(self.pid, signal.SIGKILL)

    def killed(self) -> str:
        """Kills it; returns how it ended, or that it did not."""
        self.kill()
        manner = self.wait()
        if manner is None:
            return STUCK if _stat(self.pid)[:1] == ["D"] else SLOW
        return manner

    def signal(self, number: int) -> None:
        if self.manner is None:
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)

    def is_stopped(self) -> bool:
        """Whether another process stopped it (SIGSTOP)."""
        return _stat(self.pid)[:1] == ["T"]


def talking(life: Callable[[Channel], None], keep: Iterable[int] = ()) -> tuple[Child, Lines]:
    """A child with a channel to this process. Of all open file descriptors it keeps only the channel, `keep` and standard I/O."""
    descriptor, outlet = os.pipe()
    marker = os.urandom(8).hex()

    def lives() -> None:
        first = 3
        for kept in sorted({outlet, *keep}):
            os.closerange(first, max(first, kept))
            first = max(first, kept + 1)
        os.closerange(first, MOST_DESCRIPTORS)
        life(Channel(outlet, marker))

    try:
        child = Child(lives)
    except OSError:
        os.close(descriptor)
        raise
    finally:
        os.close(outlet)
    return child, Lines(descriptor, marker)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Makes the kernel send this process a signal as soon as its parent exits; 0 cancels it."""
    _prctl(PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Makes this process the parent of every orphaned descendant, whatever its session, so that `sweep` finds it."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def sweep(known: Iterable[int] = ()) -> None:
    """Kills and reaps all children except the known ones."""
    spared = {*known}
    end = time.monotonic() + GRACE_SECONDS
    while (orphans := _children() - spared) and time.monotonic() < end:
        for pid in orphans:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(POLL_SECONDS)


def _live(life: Callable[[], None], blocked: Iterable[int]) -> NoReturn:
    """Runs the child from start to exit."""
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        life()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _manner_of_death(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "killed by " + (signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}")
    return f"exit code {os.WEXITSTATUS(status)}" if os.WEXITSTATUS(status) else ""


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(ImportError, OSError, AttributeError):  # a Python without ctypes
        import ctypes

        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _children() -> set[int]:
    """This process's children, including those that have exited but were not reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()
    lists = list(Path("/proc/self/task").glob("*/children"))
    if lists:
        return {int(pid) for file in lists for pid in _text(file).split()}
    ours = str(os.getpid())
    return {int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _stat(int(entry.name))[1:2] == [ours]}


def _stat(pid: int) -> list[str]:
    """State, parent and so on: proc(5)."""
    return _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
