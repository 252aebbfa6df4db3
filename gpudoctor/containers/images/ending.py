"""Ends long-running engine commands, such as a build, together with gpudoctor."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

MOST_CHARACTERS = 1 << 16
GRACE_SECONDS = 5.0  # between terminating and killing a command


def lines(stream: IO[str] | None) -> Iterator[str]:
    """The lines that a command prints; a very long one comes in pieces."""
    while stream and (line := stream.readline(MOST_CHARACTERS)):
        yield line


@contextmanager
def started(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Starts a command, which is ended if the body raises an exception."""
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, text=True, errors="replace", **options) as process:
        try:
            yield process
        except BaseException:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=GRACE_SECONDS)  # an unread pipe would block it
            process.kill()
            raise
