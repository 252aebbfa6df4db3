"""What programs print in other languages, in English: `languages.yaml`."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import ahocorasick_rs

from gpudoctor.knowledge.tables import Row, Table, load

_GAP = "{}"
_NO_BREAK_SPACE, _NARROW_SPACE = "\u00a0".encode(), "\u202f".encode()


class Phrase(Row, frozen=True):
    """Words in English and in other languages; {} is any part of a line.

    label: only at the start of a line. columns: the heads of columns, with any spaces between them.
    """

    english: str
    others: tuple[str, ...]
    label: bool = False
    columns: bool = False


class Languages(Table, frozen=True):
    phrases: tuple[Phrase, ...]


class _Form(NamedTuple):
    """literal: a part that is in each text with these words."""

    literal: bytes
    other: str
    phrase: Phrase


@cache
def table() -> Languages:
    return load("languages", Languages)


def in_english(text: bytes) -> bytes:
    """A text whose known words in other languages are in English. The number of its lines stays.

    >>> in_english(b"bash: nvidia-smi: Kommando nicht gefunden.")
    b'bash: nvidia-smi: command not found.'
    """
    is_ascii = text.isascii()
    text = text if is_ascii else text.replace(_NARROW_SPACE, b" ").replace(_NO_BREAK_SPACE, b" ")
    found = {number for number, _, _ in _search(is_ascii).find_matches_as_indexes(text, overlapping=True)}
    if not found:
        return text
    words = text.decode("utf-8", "replace")
    for form in (_forms(is_ascii)[number] for number in sorted(found)):
        words = _pattern(form).sub(_english(form.phrase), words)
    return words.encode()


@cache
def _search(only_ascii: bool) -> ahocorasick_rs.BytesAhoCorasick:
    """Built in a millisecond, which counts more here than the speed of the search."""
    literals = [form.literal for form in _forms(only_ascii)]
    return ahocorasick_rs.BytesAhoCorasick(literals, implementation=ahocorasick_rs.Implementation.ContiguousNFA)


@cache
def _forms(only_ascii: bool) -> tuple[_Form, ...]:
    """The longest first: some are parts of others."""
    found = [_Form(_literal(phrase, other), other, phrase) for phrase in table().phrases for other in phrase.others]
    return tuple(sorted((form for form in found if form.literal.isascii() or not only_ascii), key=lambda form: -len(form.other)))


def _literal(phrase: Phrase, other: str) -> bytes:
    return max(other.split() if phrase.columns else other.split(_GAP), key=len).strip().encode()


@cache
def _pattern(form: _Form) -> re.Pattern[str]:
    parts = form.other.split(_GAP)
    words = r"([^\n]{1,200}?)".join(r"[ \t]+".join(map(re.escape, re.split(r" +", part))) for part in parts)
    if form.phrase.label:
        return re.compile(rf"(?m)^([ \t]*){words}")
    return re.compile(rf"(?<!\w){words}" if form.other[0].isalpha() and form.other[0].isascii() else words)


def _english(phrase: Phrase) -> str:
    """The replacement, which keeps what was in the gaps."""
    numbers = iter(range(1, 10))
    return re.sub(r"\{\}", lambda _: rf"\g<{next(numbers)}>", f"{_GAP}{phrase.english}" if phrase.label else phrase.english)
