"""Runs programs and captures their output."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from gpudoctor.worker import captured
from gpudoctor.worker.captured import TooMuch

__all__ = ["TooMuch", "finished"]


def finished(argv: Sequence[str], seconds: float | None = None, folder: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, in `folder` if given, and captures its output. If it is killed, so is all that it started.

    OSError if it cannot be run, TimeoutExpired if it does not end in time, TooMuch if its output is far too long.
    """
    done = captured.captured(argv, seconds, cwd=folder, session=True)
    return subprocess.CompletedProcess(argv, done.code, _text(done.out), _text(done.err))


def _text(data: bytes) -> str:
    """With one sort of line ends."""
    return data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
