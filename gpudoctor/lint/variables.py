"""Variables in Dockerfiles, compose files and shell words; unknown ones stay as written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

Values = Mapping[str, str]
_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACED = re.compile(r"([A-Za-z_]\w*)(?::?([-+?])|(##?|%%?|//?))?")


def expand(text: str, values: Values) -> str:
    """`text` with its variables expanded, outside of any quoting."""
    out, at = [], 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            out.append(text[at : at + 2])
            at += 2
        elif text[at] == "$":
            filled, at = variable(text, at, values)
            out.append(filled)
        else:
            out.append(text[at])
            at += 1
    return "".join(out)


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
    return "".join(out)


def variable(text: str, at: int, values: Values) -> tuple[str, int]:
    """The value of the `$…` at this place, and where it ends."""
    if text.startswith("${", at):
        end = closing(text, at + 1, "{", "}")
        return _braced(text[at + 2 : end - 1], text[at:end], values), end
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
    for place in range(at, len(text)):
        depth += (text[place] == opening) - (text[place] == ending)
        if not depth:
            return place + 1
    return len(text)


def _braced(inside: str, whole: str, values: Values) -> str:
    found = _BRACED.match(inside)
    if not found:
        return whole
    name, choice, cut = found.groups()
    value, rest = values.get(name), inside[found.end() :]
    if choice == "-":
        return value or expand(rest, values)
    if choice == "+":
        return expand(rest, values) if value else ""
    if value is None or (not cut and not choice and rest):
        return whole
    return _cut(value, cut, rest) if cut else value


def _cut(value: str, how: str, pattern: str) -> str:
    if how.startswith("/"):
        old, _, new = pattern.partition("/")
        old = old.replace("\\", "")
        return value.replace(old, new) if how == "//" else value.replace(old, new, 1)
    lengths = range(len(value) + 1) if how in ("#", "%%") else range(len(value), -1, -1)
    for length in lengths:
        if how.startswith("#") and fnmatchcase(value[:length], pattern):
            return value[length:]
        if how.startswith("%") and fnmatchcase(value[length:], pattern):
            return value[:length]
    return value
