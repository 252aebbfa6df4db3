"""Puts values into the commands of fixes: the only place where text from a machine becomes part of a command.

A template contains `<name>` for a value. A value becomes exactly one word of the command, or it is refused. Where a value is
not known, `${name:?}` is shown: bash parses it, and pasting it stops with "name: parameter null or not set" before anything runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gpudoctor.placeholders import shown_name

NAME = re.compile(r"<([a-z_]+)>")
_OPEN = re.compile(r"<([a-z_]+)>|\$\{([a-z_]+):\?\}")
_TESTED = re.compile(r"\$\{[a-z_]+:\?\}")
_PLAIN = re.compile(r"[\w./:=+,@%~-]+", re.ASCII)  # the same inside quotes, in a regular expression and for sed
_WORD = re.compile(r"\w[\w.+~:-]*", re.ASCII)
_OPERATOR = re.compile(r"&&|\|\|?|;|\$\(")
_STARTS = re.compile(r"(?:^|[\s;&|(])\Z")
_CLOSING = {"'": "'", '"': '"', "`": "`", "(": ")", "{": "}"}
_BARE = ("", "(")


class Written(str):
    """Options that gpudoctor itself wrote: they are put into a command as they are."""

    __slots__ = ()


class _Place(NamedTuple):
    """Where a name stands in a template. inside: "" or "(" for none, else the quote, "{" or "#" for a comment."""

    start: int
    end: int
    name: str
    inside: str


def word(text: str | int) -> str | None:
    """A version, a name or an address that cannot be anything but one plain word of a command; None if it is more than that.

    >>> word("580.95.05"), word("x86_64;id")
    ('580.95.05', None)
    """
    return str(text) if _WORD.fullmatch(str(text)) else None


def filled(text: str, values: Mapping[str, Any]) -> str | None:
    """The template with the known values; None if a value cannot stand where it is named.

    >>> filled("ls <file> && grep '<file>' x", {"file": "a.txt"})
    "ls a.txt && grep 'a.txt' x"
    >>> filled("ls <file>", {"file": "$(id); x"})
    "ls '$(id); x'"
    >>> filled("grep '<file>' x", {"file": "$(id)"}) is None
    True
    """
    if "<" not in text:
        return text
    parts, end = [], 0
    for place in _places(text):
        if place.name in values:
            value = _value(values[place.name], place.inside, bool(_STARTS.search(text[: place.start])))
            if value is None:
                return None
            parts += [text[end : place.start], value]
            end = place.end
    return "".join([*parts, text[end:]])


def words_filled(text: str, values: Mapping[str, Any]) -> str | None:
    """Like `filled`, for a recipe: names and versions only."""
    if "<" not in text:
        return text
    named = [name for name in NAME.findall(text) if name in values]
    if any(word(values[name]) is None for name in named):
        return None
    return NAME.sub(lambda match: str(values.get(match[1], match[0])), text)


def shown(text: str) -> str:
    """The template as it can be pasted: each unknown value is `${name:?}`, outside single quotes.

    A line that would do something before the shell comes to such a value tries them all first.

    >>> print(shown("ls && rm -f <file> '<name>.x'"))
    : "${file:?}" "${name:?}" && ls && rm -f ${file:?} ''"${name:?}"'.x'
    """
    if "<" not in text and "${" not in text:
        return text
    parts, end = [], 0
    for place in _places(text):
        if place.inside != "#":
            parts += [text[end : place.start], _open(place)]
            end = place.end
    return "\n".join(map(_tried, "".join([*parts, text[end:]]).split("\n")))


def _open(place: _Place) -> str:
    value = f"${{{shown_name(place.name)}:?}}"
    return f"'\"{value}\"'" if place.inside == "'" else value


def _tried(line: str) -> str:
    tested = dict.fromkeys(_TESTED.findall(line))
    if set(tested) <= set(_TESTED.findall(_OPERATOR.split(line)[0])):
        return line
    return " ".join([":", *(f'"{value}"' for value in tested), "&&", line])


def names(text: str) -> tuple[str, ...]:
    """The values that a template or a shown line still lacks, each once."""
    return tuple(dict.fromkeys(match[1] or match[2] for match in _OPEN.finditer(text)))


def parts(command: str) -> list[str]:
    """The commands that are joined by &&. No value contains these signs."""
    return command.split(" && ")


def _value(value: Any, inside: str, starts: bool) -> str | None:
    if isinstance(value, Written):
        return value
    if isinstance(value, (list, tuple)):
        words = [_value(one, inside, starts) for one in value]
        return " ".join(map(str, words)) if inside in _BARE and None not in words else None
    text = str(value)
    if not text.isprintable() or " && " in text:
        return None
    if inside == "#" or _PLAIN.fullmatch(text):
        return None if starts and text.startswith("-") and inside in _BARE else text
    return shlex.quote(text) if inside in _BARE and not (starts and text.startswith("-")) else None


def _places(text: str) -> Iterator[_Place]:
    named = {match.start(): match for match in NAME.finditer(text)}
    last = max(named, default=-1)
    stack = [""]
    at = 0
    while at <= last:
        if match := named.get(at):
            yield _Place(at, match.end(), match[1], stack[-1])
            at = match.end()
        else:
            at += _step(text, at, stack)


def _step(text: str, at: int, stack: list[str]) -> int:
    """Follows the quotes over one sign; returns the number of characters read."""
    sign, inside = text[at], stack[-1]
    if inside == "#":
        if sign == "\n":
            stack.pop()
    elif inside == "'":
        if sign == "'":
            stack.pop()
    elif sign == "\\":
        return 2
    elif inside and sign == _CLOSING[inside]:
        stack.pop()
    else:
        _opened(text, at, stack)
    return 1


def _opened(text: str, at: int, stack: list[str]) -> None:
    sign, inside, before = text[at], stack[-1], text[at - 1 : at]
    is_quote = sign in '"`' or (sign == "'" and inside != '"')
    is_group = (sign == "(" and (inside != '"' or before == "$")) or (sign == "{" and before == "$")
    is_comment = sign == "#" and inside in _BARE and (not before or before.isspace())
    if is_quote or is_group or is_comment:
        stack.append(sign)
