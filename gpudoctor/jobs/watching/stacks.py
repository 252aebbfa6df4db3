"""Stacks of a Python program by py-spy, which reads its memory and does not stop it (--nonblocking)."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from typing import Any

EVERY_SECONDS, MOST = 5.0, 12
TIMEOUT_SECONDS = 20.0
FRAMES = 5  # innermost, of each stack
THREAD = re.compile(r"Thread \S+ \((?P<state>[\w+]+)\)")
FRAME = re.compile(r"\s+(?P<frame>\S.*\(.+:\d+\))")


class Stacks:
    """why_not: why there are none."""

    def __init__(self, is_wanted: bool) -> None:
        self.why_not = "" if is_wanted else "not asked for (--stacks)"
        self._program = shutil.which("py-spy") if is_wanted else None
        if is_wanted and not self._program:
            self.why_not = "py-spy is not installed (pip install py-spy)"
        self._process: subprocess.Popen[bytes] | None = None
        self._output: Any = None
        self._due = 2.0
        self._ends = 0.0
        self._taken = 0
        self._frames: Counter[str] = Counter()

    def look(self, at: float, pid: int | None) -> None:
        """Starts py-spy or takes what it printed; never waits for it."""
        if self._process:
            self._poll(at)
        elif self._program and pid and at >= self._due and self._taken < MOST:
            self._due, self._ends = at + EVERY_SECONDS, at + TIMEOUT_SECONDS
            self._output = tempfile.TemporaryFile()  # noqa: SIM115 (it outlives this call)
            argv = [self._program, "dump", "--nonblocking", "--pid", str(pid)]
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT)

    def _poll(self, at: float) -> None:
        assert self._process
        code = self._process.poll()
        if code is None and at < self._ends:
            return
        if code is None:
            self._process.kill()
            self._process.wait()
        self._output.seek(0)
        text = self._output.read(1 << 18).decode("utf-8", "replace")
        self._output.close()
        self._process = None
        self._taken += 1
        if code == 0:
            self._frames.update(innermost(text))
        else:
            self.why_not = " ".join(text.split())[:200] or f"py-spy ended with {code}"

    def as_value(self) -> list[str]:
        """Frames and in how many of the stacks they were, the most frequent first."""
        return [f"{frame} in {count} of {self._taken} stacks" for frame, count in self._frames.most_common(8)]


def innermost(text: str) -> list[str]:
    """The innermost frames of the threads that run, each once."""
    found: dict[str, None] = {}
    room = 0
    for line in text.splitlines():
        if thread := THREAD.match(line):
            room = FRAMES if thread["state"].startswith("active") else 0
        elif room and (frame := FRAME.match(line)):
            found[frame["frame"]] = None
            room -= 1
    return list(found)
