"""Runs steps one by one, each after a confirmation, and logs commands, output and exit codes."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from gpudoctor.plain import plain
from gpudoctor.repair import script
from gpudoctor.repair.plan import Step, is_checked_later

_GRACE_SECONDS = 5.0
_QUIET_SECONDS = 0.3
_USER = "USER=${SUDO_USER:-$(id -un)}\n"
_NO_SUDO = 'sudo() { "$@"; }\n'


class Quit(Exception):
    """The user quit."""


class Failed(Exception):
    """A step, or the command that verifies it, failed."""


@dataclass
class Runner:
    """ask: a question -> the answer. busy: who works on a GPU right now. done: what became of each step.

    for_later: what is left to the person. has_run: whether any step ran. reboots: whether one of them counts from the next boot.
    """

    ask: Callable[[str], str]
    journal: BinaryIO
    busy: Callable[[], list[str]]
    done: list[str] = field(default_factory=list)
    for_later: list[str] = field(default_factory=list)
    has_run: bool = False
    reboots: bool = False

    def run(self, steps: Sequence[Step]) -> None:
        """Raises Failed or Quit if not all steps were handled."""
        for number, step in enumerate(steps, 1):
            self._tell(f"\n== Step {number} of {len(steps)}: {step.title}")
            self._tell(*(f"   Also for: {why.title} ({why.problem})" for why in step.also))
            later = is_checked_later(step, steps)
            ways = (step, *step.alternatives)
            if not any(self._take(number, way, later) for way in ways):
                is_offered = any(way.may_run for way in ways)
                self.done.append(f"step {number} {'skipped' if is_offered else 'is for you'}: {_named(step)}")

    def _take(self, number: int, step: Step, later: bool) -> bool:
        """Whether this fix was applied; otherwise the next alternative is offered."""
        self._tell(f"   Fix: {step.fix.title} ({step.problem})")
        if not step.may_run:
            return self._leave(step)
        self._tell(*(f"   $ {line}" for line in plain(step.command).splitlines()))
        if cost := script.terms(step):
            self._tell(f"   It {cost}.")
        if refused := self._refused(step):
            self._tell(f"   Not run: {refused}.")
            return False
        if not self._agreed(step):
            return False
        self._do(number, step, later)
        return True

    def _leave(self, step: Step) -> bool:
        """A step for a person: shown now, and again at the end."""
        if step.command or step.reboots:
            self._tell(f"   {script.reason(step)}", *(f"     {line}" for line in plain(step.command).splitlines()))
        if step.reboots and not step.command:
            self.reboots = True
        self.for_later.append(step.command or step.fix.title)
        return False

    def _refused(self, step: Step) -> str:
        if "root" in step.needs and os.geteuid() != 0:
            if "sudo " not in step.command:
                return "needs root: sudo gpudoctor fix --run"
            if not shutil.which("sudo"):
                return "needs root, and sudo is not installed: run gpudoctor fix --run as root"
        users = self.busy() if step.disturbs or step.replaces_driver else []
        return f"it would interrupt {', '.join(users)}; stop that first" if users else ""

    def _agreed(self, step: Step) -> bool:
        while True:
            answer = self.ask("   Run it? [y]es, [n]o, [q]uit: ").strip().lower()
            self._write(f"   Run it? {answer}\n".encode("utf-8", "replace"))
            if answer in ("y", "yes"):
                return True
            if answer in ("n", "no"):
                return False
            if answer in ("q", "quit"):
                raise Quit

    def _do(self, number: int, step: Step, later: bool) -> None:
        self.has_run = True
        self.done.append(f"step {number} was interrupted while running: {step.command}")
        code = self._execute(step.command)
        if code and step.kind != "read":
            self._fail(number, f"exit code {code}", step)
        self.done[-1] = f"step {number} {f'ended with exit code {code}' if code else 'done'}: {_named(step)}"
        self.reboots = self.reboots or step.reboots
        if step.fix.verify and step.kind != "read":
            self._verify(number, step, later)

    def _verify(self, number: int, step: Step, later: bool) -> None:
        if later or self.reboots:
            when = "After the reboot" if self.reboots else "When all steps are done"
            self._tell(f"   {when}, check that it worked: {plain(step.fix.verify)}")
            return
        self._tell("   Checking that it worked:", f"   $ {plain(step.fix.verify)}")
        if code := self._execute(step.fix.verify):
            self._fail(number, f"its verification failed with exit code {code}", step)

    def _fail(self, number: int, how: str, step: Step) -> None:
        self.done[-1] = f"step {number} failed ({how}): {_named(step)}"
        self._tell(f"\nStep {number} failed: {how}. Stopping.")
        if step.fix.undo:
            self._tell(f"Undo: {plain(step.fix.undo)}")
        raise Failed

    def _tell(self, *lines: str) -> None:
        for line in lines:
            sys.stdout.write(f"{plain(line)}\n")
            sys.stdout.flush()
            self._write(f"{line}\n".encode("utf-8", "replace"))

    def _write(self, data: bytes) -> None:
        self.journal.write(data)
        self.journal.flush()

    def _execute(self, command: str) -> int:
        """Runs the lines with /bin/sh until one fails; output is shown and logged."""
        started = time.monotonic()
        root_without_sudo = os.geteuid() == 0 and not shutil.which("sudo")
        text = (
            _USER + (_NO_SUDO if root_without_sudo else "") + "\n".join(f"(\n{line}\n) || exit" for line in command.splitlines())
        )
        self._write(f"$ {command}\n".encode())
        code = _shown(["/bin/sh", "-c", text], self._write)
        self._write(f"exit code {code} after {time.monotonic() - started:.1f} s\n".encode())
        return code


def _named(step: Step) -> str:
    """With its subject: many fixes are called alike."""
    return f"{step.title}: {step.fix.title}"


def _shown(argv: list[str], write: Callable[[bytes], None]) -> int:
    """Yields its output as it arrives. Does not wait for daemons that it left behind."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout
        try:
            while True:
                ready, _, _ = select.select([process.stdout], [], [], _QUIET_SECONDS)
                data = os.read(process.stdout.fileno(), 65536) if ready else b""
                if (ready and not data) or (not ready and process.poll() is not None):
                    return process.wait()
                write(data)
                sys.stdout.write(plain(data.decode("utf-8", "replace").replace("\r", "\n")))
                sys.stdout.flush()
        except BaseException:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """The terminal also signals the command; if it does not stop, it is killed."""
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()
