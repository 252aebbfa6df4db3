"""Programs that are asked for what they print."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence


def finished(argv: Sequence[str], seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """With what it printed. OSError where it cannot be run, TimeoutExpired where it does not end; nothing it started is left."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            with contextlib.suppress(OSError):  # also what it started: a wrapper's own child would be left
                os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(argv, process.returncode, out, err)
