"""The state folder of this user: files that no other user can read, written whole, by one process at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

LOCK_SECONDS, POLL_SECONDS = 2.0, 0.05  # a lock is held for milliseconds, unless a process is stopped or means harm


def make_folder(folder: Path) -> None:
    """Like mkdir -p, but for this user alone whatever the umask."""
    if not folder.is_dir():
        make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o700)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Locks a state file. OSError if its folder is not writable, or another process holds the lock for seconds."""
    make_folder(path.parent)
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "rb+", buffering=0) as file:
        os.fchmod(descriptor, 0o600)
        _lock(file.fileno())
        yield


def _lock(descriptor: int) -> None:
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise OSError(errno.EAGAIN, "locked by another process") from None
            time.sleep(POLL_SECONDS)


def write(path: Path, data: bytes) -> None:
    """Replaces a state file, at no time readable by other users. OSError if it cannot be written."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
