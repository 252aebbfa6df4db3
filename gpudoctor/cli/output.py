"""Output of a command: files, standard output, progress."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor import screen
from gpudoctor.cli import sharing
from gpudoctor.errors import WorkError
from gpudoctor.files import writing
from gpudoctor.files.writing import must_be_writable
from gpudoctor.plain import plain
from gpudoctor.screen import discard, tame

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.cli.sharing import Sharing

__all__ = [
    "deliver",
    "look",
    "must_be_writable",
    "prepared",
    "progress",
    "saved",
    "show",
    "show_beside",
    "text_or_json",
    "write",
    "wrote",
]

_ERASE_LINE = "\r\x1b[K"
_ASCII = str.maketrans({"✓": "+", "✗": "x", "–": "-", "…": "...", "×": "x", "’": "'", "“": '"', "”": '"'})


def write(path: Path, data: bytes) -> None:
    """Replaces the file atomically, and remembers that it was written."""
    writing.write(path, data)
    if context := click.get_current_context(silent=True):
        context.meta["gpudoctor.written"] = (*context.meta.get("gpudoctor.written", ()), str(path))


def wrote(path: Path) -> None:
    screen.note(f"Wrote {path}")


def deliver(text: str, destination: Path | None, of: Checkup | None = None) -> None:
    """Writes to the file and says so, or to standard output if there is no destination. of: says whether it is redacted."""
    if not destination:
        if of:
            sharing.tell_shown(of)
        show(text)
        return
    write(destination, text.encode("utf-8", "replace"))
    if of:
        sharing.tell_written(destination, of)
    else:
        wrote(destination)


def saved(found: Checkup, how: Sharing, path: Path | None) -> Checkup:
    """Writes the snapshot, redacted, if there is a path. Returns the checkup as it is to be shown: redacted only on request."""
    from gpudoctor import checkup

    is_for_all = how.is_for_all(path is not None)
    leaving = sharing.leaving(found, how) if path or is_for_all else found
    if path:
        write(path, checkup.saved(leaving))
        sharing.tell_written(path, leaving)
    return leaving if is_for_all else found


def look(destination: Path | None, is_beside: bool = False) -> tuple[int, bool]:
    """Width and colours for text: those of the terminal, unless it goes into a file. is_beside: it goes to standard error."""
    from gpudoctor.report import terminal

    return (80, False) if destination else terminal.look(is_beside)


def text_or_json(destination: Path | None) -> str:
    """The format that the file name implies; UsageError for another format."""
    from gpudoctor.report import formats

    named = formats.named(destination, ("text", "json"))
    if named not in (None, "text", "json"):
        raise click.UsageError(f"only text and JSON can be written here, but -o {destination} means {named}.")
    return named or "text"


def prepared(form: str | None, destination: Path | None) -> str:
    """text or json: as chosen, or as the file's name implies. Reports before the work that the file cannot be written."""
    if destination:
        must_be_writable(destination)
    return form or text_or_json(destination)


def show(text: str) -> None:
    """Writes to standard output. A reader that closes the pipe, such as `head`, is not an error."""
    if sys.stdout is None:
        raise WorkError("cannot write to standard output: it is closed")
    try:
        sys.stdout.write(_encodable(tame(text), sys.stdout.encoding or "utf-8"))
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
    except OSError as failure:
        discard(sys.stdout)
        raise WorkError(f"cannot write to standard output: {failure.strerror}") from None


def show_beside(text: str) -> None:
    """Writes to standard error: standard output belongs to another program."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody reads it
        sys.stderr.write(_encodable(tame(text), sys.stderr.encoding or "utf-8"))
        sys.stderr.flush()


def _encodable(text: str, encoding: str) -> str:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    return text


def _in_a_log(every: float) -> Callable[[str], None]:
    """Tells what is done in a separate line, the first one after `every` seconds."""
    started = last = time.monotonic()

    def tell(doing: str) -> None:
        nonlocal last
        now = time.monotonic()
        if doing and now - last >= every:
            last = now
            screen.note(f"{now - started:.0f} s  {' '.join(doing.split())}")

    return tell


@contextlib.contextmanager
def progress(every: float | None = None) -> Iterator[Callable[[str], None]]:
    """A status line on stderr if stderr is a terminal; erased at the end. every: seconds between lines elsewhere."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield _in_a_log(every) if every is not None else lambda doing: None
        return
    started = time.monotonic()

    def tell(doing: str) -> None:
        line = f"{time.monotonic() - started:.0f} s  {plain(' '.join(doing.split()))}" if doing else ""
        room = shutil.get_terminal_size().columns - 1
        line = line if len(line) <= room else line[: room - 1] + "…"
        stream.write(_ERASE_LINE + _encodable(line, stream.encoding))
        stream.flush()

    try:
        yield tell
    finally:
        stream.write(_ERASE_LINE)
        stream.flush()
