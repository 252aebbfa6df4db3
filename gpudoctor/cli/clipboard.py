"""The clipboard of whoever sits here, where there is one."""

from __future__ import annotations

import click
import pyperclip

from gpudoctor.errors import WorkError


def copy(text: str) -> None:
    """WorkError where there is none, as over ssh."""
    try:
        pyperclip.copy(text)
    except (pyperclip.PyperclipException, OSError):
        raise WorkError("there is no clipboard here (wl-clipboard, xclip or xsel): write a file with -o FILE") from None
    click.echo(f"On the clipboard: {len(text):,} characters.", err=True)
