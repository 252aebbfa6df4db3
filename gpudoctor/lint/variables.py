"""Variables in Dockerfiles, compose files and shell words; unknown ones stay as written."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import accumulate

from gpudoctor.lint.budget import MOST_NESTED, spend

Values = Mapping[str, str]
MOST_CHARACTERS = 1 << 16  # of one value or word
MOST_CUT = 1000  # of a value that a pattern is cut from
_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACED = re.compile(r"([A-Za-z_]\w*)(?::?([-+?])|(##?|%%?|//?))?")


def joined(pieces: list[str]) -> str:
    """The text, cut off where no real value is that long."""
    length = sum(map(len, pieces))
    if length > MOST_CHARACTERS:
        pieces = _beginning(pieces)
    spend(min(length, MOST_CHARACTERS))
    return "".join(pieces)


def _beginning(pieces: list[str]) -> list[str]:
    lengths = accumulate(map(len, pieces))
    return [piece for piece, length in zip(pieces, lengths, strict=True) if length <= MOST_CHARACTERS]


def expand(text: str, values: Values, depth: int = 0) -> str:
    """`text` with its variables expanded, outside of any quoting."""
    out, at = [], 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            out.append(text[at : at + 2])
            at += 2
        elif text[at] == "$":
            filled, at = variable(text, at, values, depth)
            out.append(filled)
        else:
            out.append(text[at])
            at += 1
    return joined(out)


def unquoted(text: str, values: Values, escape: str = "\\") -> str:
    """One word as Docker reads it: quotes removed, variables expanded except within single quotes."""
    out, at, quote = [], 0, ""
    while at < len(text):
        char = text[at]
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif char == escape and quote != "'" and at + 1 < len(text):
            at += 1
            out.append(text[at])
        elif char == "$" and quote != "'":
            filled, at = variable(text, at, values)
            out.append(filled)
            continue
        else:
            out.append(char)
        at += 1
    return joined(out)


def variable(text: str, at: int, values: Values, depth: int = 0) -> tuple[str, int]:
    """The value of the `$…` at this place, and where it ends."""
    if text.startswith("${", at):
        end = closing(text, at + 1, "{", "}")
        return (text[at:end] if depth > MOST_NESTED else _braced(text[at + 2 : end - 1], text[at:end], values, depth + 1)), end
    if text.startswith("$(", at):
        end = closing(text, at + 1, "(", ")")
        return text[at:end], end
    found = _NAME.match(text, at + 1)
    if not found:
        return "$", at + 1
    return values.get(found[0], text[at : found.end()]), found.end()


def closing(text: str, at: int, opening: str, ending: str) -> int:
    """The place after the bracket that closes the one at `at`; the end of the text if none does."""
    depth = 0
    for found in re.compile(f"[{re.escape(opening + ending)}]").finditer(text, at):
        depth += 1 if found[0] == opening else -1
        if not depth:
            return found.end()
    return len(text)


def _braced(inside: str, whole: str, values: Values, depth: int) -> str:
    found = _BRACED.match(inside)
    if not found:
        return whole
    name, choice, cut = found.groups()
    value, rest = values.get(name), inside[found.end() :]
    if choice == "-":
        return value or expand(rest, values, depth)
    if choice == "+":
        return expand(rest, values, depth) if value else ""
    if value is None or (not cut and not choice and rest):
        return whole
    return _cut(value, cut, rest) if cut else value


def _cut(value: str, how: str, pattern: str) -> str:
    if len(value) > MOST_CUT or len(pattern) > MOST_CUT:
        return value
    if how.startswith("/"):
        old, _, new = pattern.partition("/")
        old = old.replace("\\", "")
        return value.replace(old, new) if how == "//" else value.replace(old, new, 1)
    spend(len(value) ** 2)
    lengths = range(len(value) + 1) if how in ("#", "%%") else range(len(value), -1, -1)
    for length in lengths:
        if how.startswith("#") and fnmatchcase(value[:length], pattern):
            return value[length:]
        if how.startswith("%") and fnmatchcase(value[length:], pattern):
            return value[:length]
    return value


class Layer(Mapping[str, str]):
    """Values above others, which stay as they are; None hides one that is below."""

    def __init__(self, below: Values) -> None:
        self.below = below
        self.own: dict[str, str | None] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self.own:
            return self.below[name]
        value = self.own[name]
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self.below), **{name: None for name, value in self.own.items() if value is not None}})

    def __len__(self) -> int:
        return len(list(iter(self)))


class Timeline:
    """Values that change from line to line: each state is a view, not a copy."""

    def __init__(self, below: Values) -> None:
        self.below = below
        self.times: dict[str, list[int]] = {}
        self.texts: dict[str, list[str]] = {}
        self.now = 0

    def set(self, name: str, value: str) -> None:
        self.now += 1
        self.times.setdefault(name, []).append(self.now)
        self.texts.setdefault(name, []).append(value)

    def view(self) -> Values:
        return _View(self, self.now)


class _View(Mapping[str, str]):
    def __init__(self, line: Timeline, time: int) -> None:
        self.line = line
        self.time = time

    def __getitem__(self, name: str) -> str:
        place = bisect_right(self.line.times.get(name, ()), self.time)
        return self.line.texts[name][place - 1] if place else self.line.below[name]

    def __iter__(self) -> Iterator[str]:
        own = [name for name, times in self.line.times.items() if times[0] <= self.time]
        return iter(dict.fromkeys((*self.line.below, *own)))

    def __len__(self) -> int:
        return len(list(iter(self)))
