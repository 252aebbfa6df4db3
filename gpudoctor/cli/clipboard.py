"""The clipboard."""

from __future__ import annotations

import pyperclip

from gpudoctor import screen
from gpudoctor.errors import WorkError


def copy(text: str) -> None:
    """WorkError if there is no clipboard, as over ssh."""
    try:
        pyperclip.copy(text)
    except (pyperclip.PyperclipException, OSError):
        raise WorkError("no clipboard found (wl-clipboard, xclip or xsel): write a file with -o FILE") from None
    screen.note(f"Copied {len(text):,} characters to the clipboard.")
