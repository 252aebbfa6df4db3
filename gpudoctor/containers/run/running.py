"""Runs a container on the caller's terminal: size, keys, signals and exit code are those of the program inside.

The engine's own command does that on an inherited terminal, so this module starts it and does not interfere.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.engine import streams
from gpudoctor.containers.engine.arrival import Look
from gpudoctor.containers.engine.client import Engine
from gpudoctor.containers.engine.guard import guard, label, read, remove, remove_late
from gpudoctor.containers.run.command import Command
from gpudoctor.errors import WorkError

__all__ = ["Ended", "Run", "guard"]

KEYS = (signal.SIGINT, signal.SIGQUIT)  # the terminal sends them to the engine's command as well
ENDING = (signal.SIGTERM, signal.SIGHUP)
PASSED_ON = (*KEYS, *ENDING, signal.SIGUSR1, signal.SIGUSR2)
GRACE_SECONDS = 10  # for a program to exit after a signal, as with `docker stop`, and then for reading its last output
LOST_SECONDS = 0.3  # until it is checked whether a signal arrived
LOCAL_MODES = 3  # index in the result of tcgetattr

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Ended:
    """code: exit code of the program. refusal: the engine's message if nothing was started; the caller shows it.

    detached: id of a container that is still running.
    """

    command: Command
    code: int
    refusal: str = ""
    detached: str = ""
    has_looked: bool = True  # False if it could not be checked whether the container has a GPU


class Run:
    """One run of a command on this terminal. wants_gpu: check inside for a GPU, and report through `tell` if it is missing."""

    def __init__(self, engine: Engine, command: Command, wants_gpu: bool, tell: Tell) -> None:
        self._engine = engine
        self._command = command
        self._wants_gpu = wants_gpu
        self._has_terminal = command.has_terminal
        self._tell = tell
        self._cidfile = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._relay: streams.Relay | None = None
        self._stopping: list[threading.Thread] = []
        self._was_signalled = False
        self._must_end = False

    def wait(self) -> Ended:
        """Waits until the container has exited and is removed; retries without the options that the engine refuses."""
        with (
            guard(self._engine, self._command.is_kept) as self._cidfile,
            _terminal_as_before(self._has_terminal),
            self._signals(),
        ):
            while True:
                rewind = _rewinder()
                ended, relay = self._once()
                spared = self._command.spared(ended.refusal)
                may_try_again = spared != self._command and not self._was_signalled and streams.is_exact(ended.refusal)
                if not may_try_again or rewind is None:
                    break
                rewind()
                self._tell(f"{self._engine.name} refused {self._command.less(spared)}: starting without it")
                self._forget()
                self._command = spared
            if not ended.refusal:
                relay.release()
            if may_try_again:
                self._tell(
                    f"not retried without {self._command.less(spared)}, because the input has already been read "
                    "(use --ulimit none)"
                )
            self._tidy(ended)
            return ended

    def _once(self) -> tuple[Ended, streams.Relay]:
        argv = self._command.argv("--cidfile", str(self._cidfile), "--label", label(self._cidfile))
        # If both outputs go to one place, one pipe for both keeps the order of lines.
        as_one = streams.are_one() and not self._has_terminal
        process = self._process = subprocess.Popen(
            argv,
            env={**os.environ, **self._command.environment},
            stdin=None if sys.stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE if as_one else None,
            stderr=subprocess.STDOUT if as_one else subprocess.PIPE,
        )
        source = process.stdout if as_one else process.stderr
        assert source
        prefix = streams.PODMAN if self._engine.is_podman else streams.DOCKER
        relay = self._relay = streams.Relay(source, None if sys.stderr is None else sys.stderr.fileno(), prefix)
        relay.start()
        look = Look(self._engine, self._cidfile, self._tell) if self._wants_gpu else None
        if look:
            look.start()
        code = process.wait()
        if look:
            look.stop()
        relay.finish(GRACE_SECONDS if self._must_end else math.inf)
        for thread in self._stopping:
            thread.join()
        refusal = relay.refusal(code)
        if refusal and self._has_happened("start"):
            refusal = ""
        has_looked = look is None or look.has_looked
        return Ended(self._command, code, refusal, detached=self._detached(code), has_looked=has_looked), relay

    def _has_happened(self, event: str) -> bool:
        """Whether Docker reports this event of the container. A program could print an engine's message and exit code too."""
        if self._engine.is_podman:  # it reports no events of a removed container
            return False
        only = ("--filter", f"label={label(self._cidfile)}", "--filter", f"event={event}")
        until = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        with contextlib.suppress(WorkError):
            return bool(engines.run(self._engine.argv("events", "--since", "0", "--until", until, *only), engines.SECONDS).stdout)
        return False

    def _detached(self, code: int) -> str:
        """The container that outlives the engine's command: the user detached (^P ^Q), or it is kept and that was killed."""
        container = read(self._cidfile)
        went_away = self._has_terminal and code == 0 and not self._was_signalled
        may_be = went_away or (self._command.is_kept and code != 0)
        return container[:12] if may_be and self._is_running(container) else ""

    def _is_running(self, container: str) -> bool:
        argv = self._engine.argv("container", "inspect", "--format", "{{.State.Running}}", container)
        with contextlib.suppress(WorkError):
            return engines.run(argv, engines.SECONDS).stdout.strip() == "true"
        return False

    def _tidy(self, ended: Ended) -> None:
        """The guard removes the container that the cidfile still names."""
        ended_well = ended.code == 0 and not self._was_signalled  # else the engine's command may have left the container
        if not (ended_well or ended.refusal or read(self._cidfile)):
            remove_late(self._engine, self._cidfile)
        elif ended_well or ended.command.is_kept:
            self._cidfile.unlink(missing_ok=True)

    def _forget(self) -> None:
        if container := read(self._cidfile):
            remove(self._engine, container)
        self._cidfile.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Handlers instead of SIG_IGN: the engine's command would inherit ignored signals."""
        heard = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]  # nohup stays in effect
        before = {number: signal.signal(number, self._hear) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: Any) -> None:
        if self._process is None:
            raise SystemExit(128 + number)
        self._was_signalled = self._was_signalled or number in (*KEYS, *ENDING)
        self._must_end = self._must_end or number in ENDING
        if self._relay and number in (*KEYS, *ENDING) and has_ended(self._process):
            self._relay.give_up()
        container = read(self._cidfile)
        if container and number in KEYS and _keys_reach_us():
            return
        if not (container and self._has_terminal):
            self._process.send_signal(number)  # docker and podman pass it on, or cancel the creation
            if number in ENDING and not self._engine.is_podman:
                self._beside(self._insist, self._process, signal.Signals(number))
            return
        self._beside(self._deliver, container, signal.Signals(number))

    def _beside(self, work: Callable[..., None], *arguments: object) -> None:
        """A signal handler must not wait."""
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._stopping.append(thread)
        thread.start()

    def _insist(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Sends the signal again if needed: Docker's command loses it if the container is just about to start."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOST_SECONDS)
                return
            container = read(self._cidfile)
            if container and self._is_running(container):
                if not self._has_happened("kill"):
                    with contextlib.suppress(WorkError):
                        engines.run(self._engine.argv("kill", "--signal", number.name, container), engines.SECONDS)
                return

    def _deliver(self, container: str, number: signal.Signals) -> None:
        """Sends the signal to the container: with a terminal the engine's command passes none on, and may exit without it."""
        with contextlib.suppress(WorkError):
            engines.run(self._engine.argv("kill", "--signal", number.name, container), engines.SECONDS)
        if number in ENDING:
            with contextlib.suppress(WorkError):
                engines.run(self._engine.argv("wait", container), GRACE_SECONDS)
            with contextlib.suppress(WorkError):
                if self._command.is_kept:
                    engines.run(self._engine.argv("kill", container), engines.SECONDS)
                else:
                    self._engine.remove(container)


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Correct even if a signal interrupts `wait` just as the process ends: `poll` does not notice that."""
    if process.returncode is None:
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return True


def _keys_reach_us() -> bool:
    """Whether ^C on the terminal sends a signal to gpudoctor and the engine's command, rather than a key to the program."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp() and bool(termios.tcgetattr(terminal)[LOCAL_MODES] & termios.ISIG)
    except (OSError, termios.error):
        return False
    finally:
        os.close(terminal)


def _rewinder() -> Callable[[], object] | None:
    """A function that rewinds the input for a second start; None for a pipe, as the first start may have read from it."""
    if sys.stdin is None or sys.stdin.isatty():
        return lambda: None
    try:
        offset = os.lseek(sys.stdin.fileno(), 0, os.SEEK_CUR)
    except OSError:
        return None
    return lambda: os.lseek(sys.stdin.fileno(), offset, os.SEEK_SET)


@contextlib.contextmanager
def _terminal_as_before(has_terminal: bool) -> Iterator[None]:
    """Restores the terminal settings: the engine's command does so too, unless it was killed."""
    if not has_terminal:
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        yield
    finally:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU,))  # else it would stop a background process
        with contextlib.suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
