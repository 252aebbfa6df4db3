"""Writes files completely or not at all."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from pathlib import Path

from gpudoctor.errors import WorkError

READER_SECONDS = 10  # that a named pipe may be without a reader
_DESCRIPTOR = re.compile(
    r"""
    /dev/(?:(?P<name>stdout|stderr)|fd/(?P<fd>\d{1,9}))
    | /proc/self/fd/(?P<of_proc>\d{1,9})
    """,
    re.VERBOSE,
)


def must_be_writable(path: Path) -> None:
    """Reports before the work, not after it, that its result cannot be written."""
    try:
        obstacle = _obstacle(path)
    except OSError as failure:
        obstacle = failure.strerror
    if obstacle:
        raise WorkError(f"cannot write {path}: {obstacle}")


def _obstacle(path: Path) -> str | None:
    if (descriptor := _descriptor(path)) is not None:
        os.fstat(descriptor)
        return None
    if _is_planted(path):
        return "it is a symbolic link of another user in a shared folder"
    folder = Path(os.path.realpath(path)).parent
    if path.is_dir():
        return os.strerror(errno.EISDIR)
    if not folder.is_dir():
        return f"there is no folder {folder}"
    where = folder if _replaceable(path) else path
    if os.statvfs(where).f_flag & os.ST_RDONLY:
        return os.strerror(errno.EROFS)
    return None if os.access(where, os.W_OK) else os.strerror(errno.EACCES)


def write(path: Path, data: bytes) -> None:
    """Replaces the file as a whole; if the disk is full, it stays unchanged."""
    try:
        if (descriptor := _descriptor(path)) is not None:
            _write_to(os.dup(descriptor), data)
            return
        if _is_planted(path):
            raise PermissionError(errno.EPERM, "it is a symbolic link of another user in a shared folder")
        if _replaceable(path):
            _replace(Path(os.path.realpath(path)), data)
        elif path.is_fifo():
            _write_to(_opened_pipe(path), data)
        else:
            path.write_bytes(data)
    except OSError as failure:
        raise WorkError(f"cannot write {path}: {failure.strerror}") from None


def _descriptor(path: Path) -> int | None:
    """The descriptor that a path names. It may append to a file, which would be lost if it were replaced."""
    found = _DESCRIPTOR.fullmatch(str(path))
    if not found:
        return None
    return {"stdout": 1, "stderr": 2}[found["name"]] if found["name"] else int(found["fd"] or found["of_proc"])


def _opened_pipe(path: Path) -> int:
    """Opening a named pipe without a reader would wait for ever."""
    until = time.monotonic() + READER_SECONDS
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as failure:
            if failure.errno != errno.ENXIO:
                raise
            if time.monotonic() > until:
                raise OSError(errno.ENXIO, f"no program has read this named pipe for {READER_SECONDS} seconds") from None
            time.sleep(0.05)
            continue
        os.set_blocking(descriptor, True)
        return descriptor


def _write_to(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _is_planted(path: Path) -> bool:
    """Whether another user may choose what is replaced: the rule of fs.protected_symlinks, which not every kernel applies."""
    if not path.is_symlink():
        return False
    folder, link = path.parent.stat(), path.lstat()
    is_shared = bool(folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH)
    return is_shared and link.st_uid not in (os.geteuid(), folder.st_uid)


def _replaceable(path: Path) -> bool:
    """A device or a pipe, such as /dev/null, is written to and not replaced by a file."""
    return not path.exists() or stat.S_ISREG(path.stat().st_mode)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".gpudoctor-{secrets.token_hex(4)}")
    try:
        # Not tempfile: its files are 0600, but a report needs the mode from the umask or the old file.
        old = path.stat() if path.exists() else None
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if old else 0o666), "wb") as file:
            if old:
                os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode) & (0o7777 if old.st_uid == os.geteuid() else 0o755))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
