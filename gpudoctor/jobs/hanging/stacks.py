"""The Python stacks of processes, by py-spy, which reads them from outside without pausing the program (--nonblocking)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RATE = 25  # samples a second
DUMP_SECONDS = 15.0
MOST_RECORDED, MOST_DUMPED = 16, 48
MOST_FRAMES = 48
MOST_OUTPUT = 4 << 20
INSTALL = "py-spy is not installed (pip install py-spy)"
_THREAD = re.compile(r"thread \((\d+)\)")


def tool() -> str:
    """py-spy on PATH, or in the folder of the Python that runs gpudoctor."""
    beside = Path(sys.executable).with_name("py-spy")
    return shutil.which("py-spy") or (str(beside) if os.access(beside, os.X_OK) else "")


class Recording:
    """Samples the stacks of some processes for a while, in the background."""

    def __init__(self, program: str, pids: Iterable[int], seconds: float) -> None:
        self._folder = tempfile.mkdtemp(prefix="gpudoctor-hang-")
        self._runs: dict[int, subprocess.Popen[bytes]] = {}
        for pid in list(pids)[:MOST_RECORDED] if program else ():
            argv = [program, "record", "--pid", str(pid), "--duration", str(max(1, round(seconds))), "--rate", str(RATE)]
            argv += ["--format", "raw", "--output", self._file(pid), "--idle", "--threads", "--nonblocking"]
            with contextlib.suppress(OSError):
                self._runs[pid] = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
                )

    def _file(self, pid: int) -> str:
        return str(Path(self._folder) / f"{pid}.txt")

    def ended(self, seconds: float) -> dict[int, dict[int, float]]:
        """pid -> thread -> the share of samples in its commonest stack."""
        found = {}
        for pid, run in self._runs.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(seconds)
            if run.poll() is None:
                run.kill()
                run.wait()
            with contextlib.suppress(OSError), Path(self._file(pid)).open(encoding="utf-8", errors="replace") as file:
                if shares := shares_of(file.read(MOST_OUTPUT)):
                    found[pid] = shares
        self.close()
        return found

    def close(self) -> None:
        for run in self._runs.values():
            if run.poll() is None:
                run.kill()
                run.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def shares_of(text: str) -> dict[int, float]:
    """Thread -> share of its commonest stack.

    >>> shares_of("thread (7): MainThread;f (a.py:1) 3\\nthread (7): MainThread;f (a.py:2) 1")
    {7: 0.75}
    """
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for line in text.splitlines():
        stack, _, number = line.rpartition(" ")
        thread, _, frames = stack.partition(";")
        match = _THREAD.match(thread)
        if match and frames and number.isdigit():
            counts[int(match[1])][frames] += int(number)
    return {thread: round(max(found.values()) / sum(found.values()), 3) for thread, found in counts.items()}


def dumped(program: str, pid: int, native: bool = False) -> tuple[list[dict[str, Any]], str]:
    """The stacks of a process, or why there are none. native: with C frames, for which py-spy pauses the program meanwhile."""
    argv = [program, "dump", "--pid", str(pid), "--json", *(["--native"] if native else ["--nonblocking"])]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=DUMP_SECONDS, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        return [], f"py-spy: {failure}"[:200]
    if done.returncode or len(done.stdout) > MOST_OUTPUT:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return [], next((line.strip() for line in lines if line.strip()), f"exit code {done.returncode}")[:200]
    try:
        return [_thread(thread) for thread in json.loads(done.stdout)], ""
    except (ValueError, TypeError, KeyError) as failure:
        return [], f"py-spy wrote something unexpected ({failure})"[:200]


def _thread(said: dict[str, Any]) -> dict[str, Any]:
    frames = [[str(frame["name"]), str(frame["filename"]), int(frame["line"] or 0)] for frame in said["frames"][:MOST_FRAMES]]
    return {
        "id": int(said.get("os_thread_id") or 0),
        "name": str(said.get("thread_name") or ""),
        "active": bool(said.get("active")),
        "gil": bool(said.get("owns_gil")),
        "frames": frames,
    }
