"""Writes files completely or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from pathlib import Path

from gpudoctor.errors import WorkError


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise WorkError(f"cannot create the folder {path}: {failure.strerror}") from None


def must_be_writable(path: Path) -> None:
    """Reports before the work, not after it, that its result cannot be written."""
    try:
        obstacle = _obstacle(path)
    except OSError as failure:
        obstacle = failure.strerror
    if obstacle:
        raise WorkError(f"cannot write {path}: {obstacle}")


def _obstacle(path: Path) -> str | None:
    folder = Path(os.path.realpath(path)).parent
    if path.is_dir():
        return "it is a folder"
    if not folder.is_dir():
        return f"there is no folder {folder}"
    where = folder if _replaceable(path) else path
    if os.statvfs(where).f_flag & os.ST_RDONLY:
        return os.strerror(errno.EROFS)
    return None if os.access(where, os.W_OK) else os.strerror(errno.EACCES)


def write(path: Path, data: bytes) -> None:
    """Replaces the file as a whole; if the disk is full, it stays unchanged."""
    try:
        if _replaceable(path):
            _replace(Path(os.path.realpath(path)), data)
        else:
            path.write_bytes(data)
    except OSError as failure:
        raise WorkError(f"cannot write {path}: {failure.strerror}") from None


def _replaceable(path: Path) -> bool:
    """A device or a pipe, such as /dev/null, is written to and not replaced by a file."""
    return not path.exists() or stat.S_ISREG(path.stat().st_mode)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".gpudoctor-{secrets.token_hex(4)}")
    try:
        # Not tempfile: its files are 0600, but a report needs the mode from the umask or the old file.
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
