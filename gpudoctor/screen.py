"""What reaches the terminal passes through here: text from outside must not move the cursor, set a title or use the clipboard."""

from __future__ import annotations

import contextlib
import os
import re
import sys

import click

from gpudoctor.plain import plain

# Colours and ends of lines are kept. Not allowed are all other control characters, and those that reverse the direction of text.
_CONTROL = re.compile("\x1b\\[[0-9;]{0,20}m|\r\n|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def tame(text: str) -> str:
    """Finished output, with each control character as an escape that JSON understands, too."""
    return _CONTROL.sub(lambda found: found[0] if len(found[0]) > 1 else f"\\u{ord(found[0]):04x}", text)


def note(text: str) -> None:
    """A line on standard error. A result is not lost because a note about it cannot be written."""
    try:
        click.echo(plain(text), err=True)
    except (OSError, ValueError):
        discard(sys.stderr)


def discard(stream: object) -> None:
    """Keeps the flush at exit from failing again: https://docs.python.org/3/library/signal.html#note-on-sigpipe."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[attr-defined]
        os.close(nowhere)
