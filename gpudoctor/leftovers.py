"""What a job may leave on this machine: processes, and a folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from gpudoctor.bootstrap import PLACES

ROUNDS, ROUND_SECONDS = 5, 0.02  # a process may start another one while it is being killed


def remove(marker: str) -> None:
    """Kills what a job has left running, and removes its files."""
    _kill(marker)
    for folder in _folders(marker):
        for _ in range(ROUNDS):  # fails while a process that was just killed still writes to it
            shutil.rmtree(folder, ignore_errors=True)
            if not Path(folder).exists():
                break
            time.sleep(ROUND_SECONDS)


def _kill(marker: str) -> None:
    """Kills every process with the marker of a job in its environment, whatever its session. See bootstrap.environment."""
    wanted = f"GPUDOCTOR_JOB={marker}".encode()
    for _ in range(ROUNDS):
        if not (found := list(_with(wanted))):
            return
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(ROUND_SECONDS)


def _with(variable: bytes) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if variable in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def _folders(marker: str) -> Iterator[str]:
    """Where the files of a job can be. What its Python says about that is not believed: see bootstrap.BOOTSTRAP and tempfile."""
    places = (*map(os.environ.get, ("TMPDIR", "TEMP", "TMP")), "/tmp", "/usr/tmp", ".", *PLACES)
    for place in filter(None, places):
        folder = Path(place, f"gpudoctor-{marker}")
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(folder.lstat().st_mode):
                yield str(folder)
