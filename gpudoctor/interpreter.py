"""Runs jobs in a Python: the running interpreter, or the Python of another environment on this machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from gpudoctor import pipes, protocol
from gpudoctor.bootstrap import BOOTSTRAP, NO_ROOM, NO_ROOM_WORDS, TOO_OLD, TOO_OLD_WORDS, environment, of_job, travelling_sources
from gpudoctor.errors import UserError, WorkError
from gpudoctor.leftovers import remove

Hear = Callable[[dict[str, Any]], None]

POLL_SECONDS = 0.5  # how soon a changed deadline is noticed
OUTER_SECONDS = 1.5  # time that the worker may take beyond its own limit before it is killed
PIPE_BYTES = 1 << 20  # room for a whole snapshot, so that the worker does not wait for the reader
MOST_WORDS = 120  # most characters quoted from a program that is not a suitable Python
CUTTING_OFF = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class NoProcess(WorkError):
    """The kernel starts no more processes of this user or cgroup."""


class NoRoom(WorkError):
    """No temporary folder takes the worker's files."""


class Target(Protocol):
    """Where jobs run. path: its name in messages."""

    path: str

    def run(self, job: dict[str, Any], hear: Hear, meanwhile: Callable[[], None] = ..., patience: float = ...) -> int:
        """As Interpreter.run."""
        ...

    def said(self) -> str:
        """Standard error of the last job."""
        ...


class Interpreter:
    """A Python 3.8+ on this machine; `path` can also be the folder of a virtual environment."""

    def __init__(self, path: str) -> None:
        self.path = _inside(path) if os.path.isdir(path) else path  # noqa: PTH112 (a closed folder is no error)
        self._said: Callable[[], str] = str

    def run(
        self,
        job: dict[str, Any],
        hear: Hear,
        meanwhile: Callable[[], None] = lambda: None,
        patience: float = 0,
        more: Callable[[], list[str]] | None = None,
    ) -> int:
        """Sends the job ({"seconds", ...}) and passes each message from it to `hear`, until the job ends or its time is up.

        more: called when all has been answered; returns further probes to ask. meanwhile: called once while the first
        answers arrive. patience: seconds in which a job stopped by ^C or SIGTERM may still return its results; 0: they are lost.
        Returns the signal that stopped the job, or 0. UserError if this is not a suitable Python, WorkError if no temporary
        folder has room.
        """
        marker = secrets.token_hex(8)
        ending = Ending(job["seconds"] + OUTER_SECONDS, patience)
        with ending.on_signals():
            process = self._start(
                marker, {"sources": of_job(job, travelling_sources()), **job, "marker": marker, "more": more is not None}
            )
            assert process.stderr
            words = pipes.Words(process.stderr)
            heard: dict[str, Any] = {}
            try:
                ending.may_stop(process.terminate)
                meanwhile()
                for message in messages(process, marker, ending, "end"):
                    heard.update(message)
                    hear(message)
                    if more and process.stdin and "more" in message:
                        pipes.feed(process.stdin, json.dumps(more()).encode() + b"\n", is_all=False)
            finally:
                ending.is_over = True
                was_late = ending.is_late()
                if more and process.stdin:
                    pipes.feed(process.stdin, b"")
                end(process)
                remove(marker)
            ending.heed_late()
            self._said = words.text
            if "hello" not in heard and not ending.signal:
                if was_late:
                    raise WorkError(f"{self.path} did not start within {job['seconds']:g} s: --timeout gives it more time")
                raise refusal(self.path, process.returncode, self.said())
            return ending.signal

    def said(self) -> str:
        """Standard error of the last job."""
        return self._said().strip()

    def _start(self, marker: str, job: dict[str, Any]) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                [self.path, "-c", BOOTSTRAP],
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
                env=environment(marker),
            )
        except BlockingIOError as failure:
            raise NoProcess(f"{self.path} cannot be started: {failure.strerror}") from None
        except OSError as failure:
            raise UserError(f"{self.path} cannot be run as a Python interpreter: {failure.strerror}") from None
        assert process.stdin
        pipes.feed(process.stdin, json.dumps(job).encode() + b"\n", is_all=not job["more"])
        widen(process)
        return process


def _inside(folder: str) -> str:
    """The Python of a virtual environment, or in a folder of programs."""
    below = [Path(folder) / name for name in ("bin/python", "python", "python3")]
    return str(next(filter(os.path.exists, below), below[0]))


def refusal(path: str, code: int | None, stderr: str) -> UserError | WorkError:
    """Why a Python did not run a job."""
    if code == TOO_OLD and TOO_OLD_WORDS in stderr:
        return UserError(f"{path} is older than Python 3.8, the oldest that gpudoctor can look into")
    if code == NO_ROOM and NO_ROOM_WORDS in stderr:
        hint = "; the limit on file sizes (ulimit -f) is low" if os.strerror(errno.EFBIG) in stderr else ""
        return NoRoom(f"no temporary folder has room for gpudoctor's files ({stderr.rpartition(NO_ROOM_WORDS)[2]}{hint})")
    lines = stderr.splitlines()
    words = lines[-1 if lines[0].startswith("Traceback") else 0] if lines else how_it_ended(code)
    if "import sys" in words:  # it took our program for an argument
        words = "it is another program"
    return UserError(f"{path} does not behave like Python 3.8 or newer: {words[:MOST_WORDS]}")


def how_it_ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"no output, exit code {code}" if code else "no output"


def widen(process: subprocess.Popen[bytes]) -> None:
    """Makes a process's output pipe as large as allowed."""
    assert process.stdout
    with contextlib.suppress(OSError):  # pipe memory is limited per user; with a small pipe the worker waits for the reader
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


class Ending:
    """When a job has to end: when its time is up, or soon after a signal."""

    def __init__(self, seconds: float, patience: float) -> None:
        self.patience = patience
        self.deadline = time.monotonic() + seconds + patience
        self.stop: Callable[[], None] | None = None
        self.early = 0
        self.signal = 0
        self.late = 0
        self.is_over = False

    def is_late(self) -> bool:
        return time.monotonic() >= self.deadline

    def may_stop(self, stop: Callable[[], None]) -> None:
        """The job has started, and `stop` asks it to end. Applies a signal that arrived before this was possible."""
        self.stop = stop
        if self.early:
            self._cut_off(self.early, None)

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """The first ^C or SIGTERM asks a job with patience to end. A second one, or any without patience, interrupts at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        heeded = [number for number in CUTTING_OFF if _is_free(signal.getsignal(number))]
        before = {number: signal.signal(number, self._cut_off) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _cut_off(self, number: int, frame: Any) -> None:
        if self.is_over:  # the cleanup takes a moment and leaves nothing behind
            self.late = number
            return
        if not self.stop:
            self.early = number
            return
        if self.signal or not self.patience:
            raise _exit(number)
        self.signal = number
        self.deadline = time.monotonic() + self.patience
        self.stop()

    def heed_late(self) -> None:
        """Applies a signal that arrived during the cleanup to whatever follows the job."""
        if self.late and not self.patience:
            raise _exit(self.late)
        self.signal = self.signal or self.late


def _exit(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def _is_free(handler: Any) -> bool:
    """Handlers set by the calling program stay, and ignored signals stay ignored, as under nohup."""
    is_default = handler in (signal.SIG_DFL, signal.default_int_handler)
    return is_default or (getattr(handler, "__module__", None) or "").startswith("gpudoctor.")


def messages(process: subprocess.Popen[bytes], marker: str, ending: Ending, last: str) -> Iterator[dict[str, Any]]:
    """The text after the marker on each line of the process, until the message with the key `last` or the deadline.

    Parsed by protocol.message; lines that are not messages are left out.
    """
    prefix, size = marker.encode(), 0
    for line in lines(process, ending):
        _, marked, said = line.partition(prefix)  # before the marker a library may have written without an end of line
        size += len(said)
        if size > protocol.MOST_BYTES:
            return
        if marked and (message := protocol.message(said)):
            yield message
            if last in message:
                return


def lines(process: subprocess.Popen[bytes], ending: Ending) -> Iterator[bytes]:
    """Each line that the process writes, until it ends or the deadline passes; longer lines than MOST_LINE_BYTES are left out."""
    assert process.stdout
    begun: list[bytes] = []  # the parts of an unfinished line
    size = 0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := ending.deadline - time.monotonic()) > 0:
            if not selector.select(min(left, POLL_SECONDS)):
                if process.poll() is not None:  # what it has left behind keeps the pipe open
                    return
                continue
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                return
            *ends, rest = data.split(b"\n")
            for end in ends:
                if size + len(end) <= protocol.MOST_LINE_BYTES:
                    yield b"".join((*begun, end))
                begun, size = [], 0
            size += len(rest)
            if size <= protocol.MOST_LINE_BYTES:
                begun.append(rest)
            else:
                begun.clear()


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks the process to end, then kills it; does not wait for a process stuck in the kernel."""
    for number, seconds in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 0.5)):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
    if process.stdout:
        process.stdout.close()


def this_interpreter() -> Interpreter:
    return Interpreter(sys.executable)
