"""The words of a command line: options and their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def pairs(words: Sequence[str]) -> Iterator[list[str]]:
    """Each option, together with the next word if that is its value."""
    piece: list[str] = []
    for word in words:
        if piece and (word.startswith("-") or len(piece) == 2):
            yield piece
            piece = []
        piece.append(word)
    if piece:
        yield piece


def each(option: str, values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield option
        yield value
