"""Lines for people: headings, entries, paragraphs that fit the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator

WIDEST = 100


def parts(*given: Iterable[str]) -> Iterator[str]:
    """The non-empty parts, with an empty line between them."""
    filled = [lines for lines in map(list, given) if lines]
    for place, lines in enumerate(filled):
        yield from [""] if place else []
        yield from lines


def entry(name: str, text: str) -> Iterator[str]:
    """ "name: text"; no line if the text is empty."""
    if text:
        yield from _wrapped(f"{name}: {text}", "", "  ")


def paragraph(text: str, indent: str = "") -> Iterator[str]:
    if text:
        yield from _wrapped(text, indent, indent + "  " if indent else "")


def listed(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from _wrapped(text, "- ", "  ")


def command(text: str) -> Iterator[str]:
    yield from (f"      {line}" for line in text.splitlines())


def _wrapped(text: str, first: str, following: str) -> list[str]:
    width = min(shutil.get_terminal_size().columns, WIDEST)
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=following, break_long_words=False, break_on_hyphens=False
    )
