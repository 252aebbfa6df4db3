"""Writing safely: a file is complete or untouched, a closed pipe is no error, progress leaves no trace."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from gpudoctor.errors import WorkError

_ERASE_LINE = "\r\x1b[K"
_ASCII = str.maketrans({"✓": "+", "✗": "x", "–": "-", "…": "...", "×": "x", "’": "'", "“": '"', "”": '"'})


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise WorkError(f"cannot make the folder {path}: {failure.strerror}") from None


def must_be_writable(path: Path) -> None:
    """Says before the work, not after it, that its result would have no place."""
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
    """Replaces the file as a whole; on a full disk it stays as it was."""
    try:
        if _replaceable(path):
            _replace(Path(os.path.realpath(path)), data)
        else:
            path.write_bytes(data)
    except OSError as failure:
        raise WorkError(f"cannot write {path}: {failure.strerror}") from None
    if context := click.get_current_context(silent=True):
        context.meta["gpudoctor.written"] = (*context.meta.get("gpudoctor.written", ()), str(path))


def _replaceable(path: Path) -> bool:
    """A device or a pipe, such as /dev/null, is written to: a file must not take its place."""
    return not path.exists() or stat.S_ISREG(path.stat().st_mode)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        # Not tempfile: its files are 0600, a report has the mode that the umask or the old file gives.
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def show(text: str) -> None:
    """Writes to standard output. A reader that has gone, such as `head`, has seen what it wanted."""
    if sys.stdout is None:
        raise WorkError("cannot write to standard output: it is closed")
    try:
        sys.stdout.write(_encodable(text, sys.stdout.encoding or "utf-8"))
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_the_rest()
    except OSError as failure:
        _discard_the_rest()
        raise WorkError(f"cannot write to standard output: {failure.strerror}") from None


def _encodable(text: str, encoding: str) -> str:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    return text


def _discard_the_rest() -> None:
    """What is still in the buffer must not fail again at exit: https://docs.python.org/3/library/signal.html#note-on-sigpipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on stderr that says what is being done, while stderr is a terminal; gone at the end."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda doing: None
        return
    started = time.monotonic()

    def tell(doing: str) -> None:
        line = f"{time.monotonic() - started:.0f} s  {doing}" if doing else ""
        room = shutil.get_terminal_size().columns - 1
        line = line if len(line) <= room else line[: room - 1] + "…"
        stream.write(_ERASE_LINE + _encodable(line, stream.encoding))
        stream.flush()

    try:
        yield tell
    finally:
        stream.write(_ERASE_LINE)
        stream.flush()
