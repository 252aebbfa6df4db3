"""Text that cannot command a terminal: what machines answer may hold escape sequences."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text with each control character written out."""
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable() or character in "\n\t\N{NO-BREAK SPACE}":
        return character
    return character.encode("unicode_escape").decode()
