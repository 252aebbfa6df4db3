"""A container as a target: a shell in it, attached through the engine's own command, that starts Python for every job.

Jobs come through standard input, so nothing is installed, copied or mounted, and a remote daemon is no special case. The
shell is started through the image's own entrypoint: NVIDIA's switches forward compatibility on.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from gpudoctor.errors import WorkError
from gpudoctor.interpreter import (
    BOOTSTRAP,
    OUTER_SECONDS,
    Ending,
    Hear,
    end,
    folder_of,
    lines,
    messages,
    travelling_sources,
    widen,
)

START_SECONDS = 180.0  # an entrypoint may do much before it comes to our command
LOOK_SECONDS = 20.0
SERVE = Path(__file__).with_name("serve.sh")

# Kills what has a job's marker in its environment, and removes what it wrote.
CLEAN = """
for process in /proc/[0-9]*; do
  case $(tr '\\0' ' ' 2>/dev/null <"$process/environ") in *GPUDOCTOR_JOB={marker}*) kill -KILL "${{process#/proc/}}" ;; esac
done
rm -rf /tmp/gpudoctor-{marker} /var/tmp/gpudoctor-{marker} /dev/shm/gpudoctor-{marker} {folder}
"""

Execute = Callable[[str], None]  # runs a script by a shell of its own in the container


class NotStarted(Exception):
    """A container that did not come as far as our shell: what was said on standard error, and the exit code."""

    def __init__(self, message: str, code: int | None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Inside:
    """A container that runs. python: its interpreter, "" where it has none."""

    def __init__(self, path: str, process: subprocess.Popen[bytes], marker: str, stderr: IO[bytes], execute: Execute) -> None:
        self.path = path
        self.process = process
        self.marker = marker
        self.python = ""
        self.has_ctypes = False
        self.broken = ""  # a Python that is there and of no use
        self._stderr = stderr
        self._execute = execute
        self._folder = ""  # of a job that has not ended

    def run(self, job: dict[str, Any], hear: Hear, meanwhile: Callable[[], None] = lambda: None, patience: float = 0) -> int:
        """As Interpreter.run."""
        ending = Ending(job["seconds"] + OUTER_SECONDS, patience)
        heard: dict[str, Any] = {}
        ending.may_stop(lambda: self._execute(f"kill -TERM {heard['pid']}") if "pid" in heard else None)
        self._folder = f"/tmp/gpudoctor-{self.marker}"
        with ending.on_signals():
            self.say("job", json.dumps({"sources": travelling_sources(), **job, "marker": self.marker}), ending=ending)
            meanwhile()
            for message in messages(self.process, self.marker, ending, "ended"):
                heard.update(message)
                hear(message)
                self._folder = folder_of(heard, self.marker) or self._folder
            ending.is_over = True
        if "ended" in heard:
            self._folder = ""
        ending.heed_late()
        if "hello" not in heard and not ending.signal:
            said = self.said() or f"exit code {heard['ended']}" if "ended" in heard else f"no answer in {job['seconds']:g} s"
            raise WorkError(f"the Python of {self.path} could not do gpudoctor's work: {said.splitlines()[-1]}{_hint(said)}")
        return ending.signal

    def clean(self) -> None:
        """After a job that did not end by itself: nothing of it stays in the container."""
        if self._folder:
            self._execute(CLEAN.format(marker=self.marker, folder=shlex.quote(self._folder)))

    def look(self, files: Sequence[str]) -> list[bytes]:
        """The lines in which the shell itself shows files and a few more things, without any Python: see serve.sh."""
        self.say("look " + " ".join(files))
        shown, last = [], (self.marker + '{"ended"').encode()
        for line in lines(self.process, Ending(LOOK_SECONDS, 0)):
            if line.startswith(last):
                break
            shown.append(line)
        return shown

    def greet(self) -> None:
        """Waits for the shell to say which Python it will use."""
        for message in messages(self.process, self.marker, Ending(START_SECONDS, 0), "python"):
            self.python, self.has_ctypes = message["python"], bool(message.get("ctypes"))
            self.broken = message.get("broken", "")
            return
        code = self.process.poll()
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.process.wait(1)
        raise NotStarted(self.said() or f"nothing was heard from it in {START_SECONDS:.0f} s", code)

    def use(self, python: str) -> bool:
        """Has every job run by this Python of the container; whether it can."""
        self.say("python " + python)
        self.greet()
        return self.python == python

    def say(self, *words: str, ending: Ending | None = None) -> None:
        """Until it is over: whoever should read may be stuck."""
        assert self.process.stdin
        descriptor, ending = self.process.stdin.fileno(), ending or Ending(LOOK_SECONDS, 0)
        data = "".join(line + "\n" for line in words).encode()
        try:
            while data and (left := ending.deadline - time.monotonic()) > 0:
                if select.select((), (descriptor,), (), left)[1]:
                    data = data[os.write(descriptor, data) :]
        except BrokenPipeError:
            raise WorkError(f"{self.path} has ended: {self.said() or 'it said nothing'}") from None

    def said(self) -> str:
        """What came on standard error so far."""
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace").strip()


def _hint(said: str) -> str:
    """What is behind words that do not say it."""
    if re.search(r"\bKilled\b|MemoryError|Cannot allocate memory", said):
        return " (its memory limit is too low: it needs 64 MiB)"
    if "exit code 137" in said:
        return " (it was killed; most likely its memory limit is too low: it needs 64 MiB)"
    if "No space left on device" in said:
        return " (its /tmp is full)"
    return ""


def shell(marker: str, python: str = "", adopt: bool = False) -> list[str]:
    """What follows `sh` to serve us."""
    return ["-c", SERVE.read_text(encoding="utf-8"), "gpudoctor", marker, BOOTSTRAP, python, "adopt" if adopt else ""]


@contextlib.contextmanager
def attached(path: str, argv: Sequence[str], marker: str, execute: Execute) -> Iterator[Inside]:
    """The container behind a command of the engine that is attached to our shell; NotStarted where that does not come up."""
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True, bufsize=0
        )
        widen(process)
        assert process.stdin
        os.set_blocking(process.stdin.fileno(), False)
        inside = Inside(path, process, marker, stderr, execute)
        try:
            inside.greet()
            yield inside
        finally:
            inside.clean()
            with contextlib.suppress(OSError):
                process.stdin.close()  # the shell ends with its input
            end(process)


def new_marker() -> str:
    return secrets.token_hex(8)
