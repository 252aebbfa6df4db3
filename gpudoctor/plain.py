"""Makes text safe for a terminal: answers of a machine may contain escape sequences."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text with each control character shown as an escape."""
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable() or character in "\n\t\N{NO-BREAK SPACE}":
        return character
    return character.encode("unicode_escape").decode()
