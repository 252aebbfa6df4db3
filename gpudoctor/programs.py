"""Runs programs and captures their output."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence


def finished(argv: Sequence[str], seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end and captures its output. Nothing that it started is left running.

    OSError if it cannot be run, TimeoutExpired if it does not end in time.
    """
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
            with contextlib.suppress(OSError):  # also ends what it started: the child of a wrapper would be left running
                os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(argv, process.returncode, out, err)
