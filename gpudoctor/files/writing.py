"""Writes files completely or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path

from gpudoctor.errors import WorkError


def must_be_writable(path: Path) -> None:
    """Reports before the work, not after it, that its result cannot be written."""
    try:
        obstacle = _obstacle(path)
    except OSError as failure:
        obstacle = failure.strerror
    if obstacle:
        raise WorkError(f"cannot write {path}: {obstacle}")


def _obstacle(path: Path) -> str | None:
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
        if _is_planted(path):
            raise PermissionError(errno.EPERM, "it is a symbolic link of another user in a shared folder")
        if _replaceable(path):
            _replace(Path(os.path.realpath(path)), data)
        else:
            path.write_bytes(data)
    except OSError as failure:
        raise WorkError(f"cannot write {path}: {failure.strerror}") from None


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
