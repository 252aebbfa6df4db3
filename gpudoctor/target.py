"""Where a job runs, and how it gets there: an interpreter on this machine, this one or somebody's environment."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpudoctor.errors import UserError

Hear = Callable[[dict[str, Any]], None]

OUTER_SECONDS = 1.5  # what the worker may need beyond its own limit before it is killed
PIPE_BYTES = 1 << 20  # room for a whole snapshot, so that the worker need not wait for us
MOST_WORDS = 120  # of what a program says that is no Python
TOO_OLD = 79  # a code that no Python exits with by itself

# Parses on every Python, so that an old one can say that it is too old.
BOOTSTRAP = f"""
import sys
if sys.version_info < (3, 8):
    sys.exit({TOO_OLD})
import json, os, shutil, signal, tempfile
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
sys.dont_write_bytecode = True
job = json.loads(sys.stdin.read())
job["folder"] = tempfile.mkdtemp(prefix="gpudoctor-")
try:
    for name, text in job.pop("sources").items():
        path = os.path.join(job["folder"], name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    sys.path[0] = job["folder"]
    from gpudoctor import worker
    worker.main(job)
finally:
    shutil.rmtree(job["folder"], ignore_errors=True)
"""


def travelling_sources() -> dict[str, str]:
    """Name -> text of the files that run in the target: ours, and NVIDIA's NVML binding, which is one file."""
    package = Path(__file__).parent
    files = [package / "__init__.py", package / "model.py", package / "worker.py", *sorted((package / "probes").glob("*.py"))]
    sources = {f"gpudoctor/{file.relative_to(package)}": file.read_text() for file in files}
    binding = importlib.util.find_spec("pynvml")
    if binding and binding.origin:
        sources["pynvml.py"] = Path(binding.origin).read_text()
    return sources


class Interpreter:
    """A Python on this machine, of any version from 3.8; `path` may also be the folder of a virtual environment."""

    def __init__(self, path: str) -> None:
        self.path = str(Path(path) / "bin" / "python") if Path(path).is_dir() else path

    def run(self, job: dict[str, Any], hear: Hear, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Sends the job ({"seconds", ...}) and tells `hear` every message that comes back, until the end or time is up.

        meanwhile: done once, while the first answers come.
        """
        marker = secrets.token_hex(8)
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
            stdin.write(json.dumps({"sources": travelling_sources(), **job, "marker": marker}).encode())
            stdin.seek(0)
            process = self._start(stdin, stderr)
            heard: dict[str, Any] = {}
            deadline = time.monotonic() + job["seconds"] + OUTER_SECONDS
            try:
                meanwhile()
                for message in messages(process, marker, deadline):
                    heard.update(message)
                    hear(message)
            finally:
                end(process)
                if folder := heard.get("folder"):
                    shutil.rmtree(folder, ignore_errors=True)
            if "hello" not in heard:
                stderr.seek(0)
                raise UserError(self._refusal(process.returncode, stderr.read().decode("utf-8", "replace")))

    def _start(self, stdin: Any, stderr: Any) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(
                [self.path, "-c", BOOTSTRAP], stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
            )
        except OSError as failure:
            raise UserError(f"{self.path} cannot be run as a Python interpreter: {failure.strerror}") from None
        assert process.stdout
        with contextlib.suppress(OSError):  # a user has only so much room in pipes; without it the worker waits for us
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return process

    def _refusal(self, code: int | None, stderr: str) -> str:
        if code == TOO_OLD:
            return f"{self.path} is older than Python 3.8, the oldest that gpudoctor can look into"
        lines = stderr.strip().splitlines()
        words = lines[-1 if lines[0].startswith("Traceback") else 0] if lines else "it said nothing"
        return f"{self.path} does not behave like Python 3.8 or newer: {words[:MOST_WORDS]}"


def messages(process: subprocess.Popen[bytes], marker: str, deadline: float) -> Iterator[dict[str, Any]]:
    """The JSON behind the marker of every line that the process writes, until it ends or the deadline has passed."""
    assert process.stdout
    prefix, rest = marker.encode(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0 and selector.select(left):
            data = os.read(process.stdout.fileno(), 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(prefix):
                    yield json.loads(line[len(prefix) :])
            if not data:
                return


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks the process to go, then makes it; never waits for one that is stuck in the kernel."""
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
