"""What takes long, such as a build, ends with gpudoctor: the engine's command is not left behind, nor what was made for it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

GRACE_SECONDS = 5.0  # until a command that was told to end is killed


@contextmanager
def started(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A command that is ended where what is inside is left by an exception."""
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, text=True, errors="replace", **options) as process:
        try:
            yield process
        except BaseException:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=GRACE_SECONDS)  # a pipe that nobody reads would keep it
            process.kill()
            raise
