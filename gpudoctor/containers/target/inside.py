"""A container as a target: a shell in it, attached through the engine's own command, that starts Python for every job.

Jobs arrive on standard input, so nothing is installed, copied or mounted, and a remote daemon works the same way. The shell is
started through the image's own entrypoint, because NVIDIA's enables forward compatibility.
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
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gpudoctor import pipes, protocol
from gpudoctor.bootstrap import BOOTSTRAP, IMPORTS_NOTHING_HERE, of_job, travelling_sources
from gpudoctor.errors import WorkError
from gpudoctor.interpreter import OUTER_SECONDS, Ending, Hear, end, lines, messages, widen

START_SECONDS = 180.0  # an entrypoint may do a lot before it runs the command
LOOK_SECONDS = 20.0
SERVE = Path(__file__).with_name("serve.sh")

# Kills the processes that have a job's marker in their environment, and removes their files. One may start another meanwhile.
CLEAN = """
for round in 1 2 3 4 5; do
  found=
  for process in /proc/[0-9]*; do
    case $(tr '\\0' ' ' 2>/dev/null <"$process/environ") in
      *GPUDOCTOR_JOB={marker}*) kill -KILL "${{process#/proc/}}" 2>/dev/null && found=yes ;;
    esac
  done
  [ "$found" ] || break
done
rm -rf /tmp/gpudoctor-{marker} /var/tmp/gpudoctor-{marker} /dev/shm/gpudoctor-{marker} {folder}
"""

Execute = Callable[[str], None]  # runs a script with a separate shell in the container


class NotStarted(Exception):
    """A container that did not reach gpudoctor's shell: its standard error and exit code."""

    def __init__(self, message: str, code: int | None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Inside:
    """A running container. python: its interpreter; "" if it has no usable one."""

    def __init__(self, path: str, process: subprocess.Popen[bytes], marker: str, words: pipes.Words, execute: Execute) -> None:
        self.path = path
        self.process = process
        self.marker = marker
        self.python = ""
        self.has_ctypes = False
        self.broken = ""  # a Python that is installed but unusable
        self._words = words
        self._execute = execute
        self._folder = ""  # of an unfinished job

    def run(self, job: dict[str, Any], hear: Hear, meanwhile: Callable[[], None] = lambda: None, patience: float = 0) -> int:
        """Same as Interpreter.run."""
        ending = Ending(job["seconds"] + OUTER_SECONDS, patience)
        heard: dict[str, Any] = {}
        ending.may_stop(lambda: self._execute(f"kill -TERM {heard['pid']}") if "pid" in heard else None)
        self._folder = f"/tmp/gpudoctor-{self.marker}"
        with ending.on_signals():
            self.say(
                "job", json.dumps({"sources": of_job(job, travelling_sources()), **job, "marker": self.marker}), ending=ending
            )
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
            said = self.said() or f"exit code {heard['ended']}" if "ended" in heard else f"no answer after {job['seconds']:g} s"
            raise WorkError(f"the Python of {self.path} could not run gpudoctor's worker: {said.splitlines()[-1]}{_hint(said)}")
        return ending.signal

    def clean(self) -> None:
        """Removes the processes and files of an unfinished job from the container."""
        if self._folder:
            self._execute(CLEAN.format(marker=self.marker, folder=shlex.quote(self._folder)))

    def look(self, files: Sequence[str]) -> list[bytes]:
        """The lines in which the shell prints files and a few other facts, without Python: see serve.sh."""
        self.say("look " + " ".join(files))
        shown, size, last = [], 0, (self.marker + '{"ended"').encode()
        for line in lines(self.process, Ending(LOOK_SECONDS, 0)):
            size += len(line)
            if line.startswith(last) or size > protocol.MOST_BYTES:
                break
            shown.append(line)
        return shown

    def greet(self) -> None:
        """Waits until the shell reports which Python it uses; NotStarted if it does not."""
        for message in messages(self.process, self.marker, Ending(START_SECONDS, 0), "python"):
            self.python, self.has_ctypes = message["python"], bool(message.get("ctypes"))
            self.broken = message.get("broken", "")
            return
        code = self.process.poll()
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.process.wait(1)
        raise NotStarted(self.said() or f"no output after {START_SECONDS:.0f} s", code)

    def use(self, python: str) -> bool:
        """Makes this Python of the container run every job; returns whether it works."""
        self.say("python " + python)
        self.greet()
        return self.python == python

    def say(self, *words: str, ending: Ending | None = None) -> None:
        """Writes lines to the shell until the deadline, because the shell may be stuck; WorkError if it has exited."""
        assert self.process.stdin
        descriptor, ending = self.process.stdin.fileno(), ending or Ending(LOOK_SECONDS, 0)
        data = "".join(line + "\n" for line in words).encode()
        try:
            while data and (left := ending.deadline - time.monotonic()) > 0:
                if select.select((), (descriptor,), (), left)[1]:
                    data = data[os.write(descriptor, data) :]
        except BrokenPipeError:
            raise WorkError(f"{self.path} has exited: {self.said() or 'no output'}") from None

    def said(self) -> str:
        """Standard error so far."""
        return self._words.text().strip()


def _hint(said: str) -> str:
    """The likely cause behind a message that does not name it."""
    if re.search(r"\bKilled\b|MemoryError|Cannot allocate memory", said):
        return " (the container's memory limit is too low: 64 MiB are needed)"
    if "exit code 137" in said:
        return " (it was killed; most likely the container's memory limit is too low: 64 MiB are needed)"
    if "No space left on device" in said:
        return " (the container's /tmp is full)"
    return ""


def folder_of(heard: dict[str, Any], marker: str) -> str:
    """The folder of a job, to be removed at the end; "" if it named none, or a folder that is not its own."""
    folder = str(heard.get("folder", ""))
    return folder if Path(folder).name == f"gpudoctor-{marker}" else ""


def shell(marker: str, python: str = "", adopt: bool = False) -> list[str]:
    """The arguments of `sh` that run serve.sh."""
    script = SERVE.read_text(encoding="utf-8")
    return ["-c", script, "gpudoctor", marker, BOOTSTRAP, python, "adopt" if adopt else "", IMPORTS_NOTHING_HERE]


@contextlib.contextmanager
def attached(path: str, argv: Sequence[str], marker: str, execute: Execute) -> Iterator[Inside]:
    """The container behind an engine command that is attached to gpudoctor's shell; NotStarted if the shell does not start."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, bufsize=0)
    widen(process)
    assert process.stdin
    assert process.stderr
    os.set_blocking(process.stdin.fileno(), False)
    inside = Inside(path, process, marker, pipes.Words(process.stderr), execute)
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
