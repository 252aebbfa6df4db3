"""Parses and rebuilds pip calls in a command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpudoctor import filling

_WITH_VALUE = ("--index-url", "-i", "--extra-index-url", "-f", "--find-links", "-c", "-r")
_ANY_PIP = re.compile(
    r"""^(?:(?P<python>\S+)\ -m\ )?       # by the pip of an interpreter
    pip3?\ (?P<verb>install|uninstall|check|show)\b
    (?P<rest>.*)$
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Call:
    """verb: install, uninstall, check or show. flags: options without a value. index: the value of --index-url."""

    python: str
    verb: str
    packages: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    index: str = ""
    extra: tuple[str, ...] = ()  # options with their values, unchanged

    @property
    def names(self) -> frozenset[str]:
        return frozenset(map(name_of, self.packages))


def parsed(part: str) -> Call | None:
    """The pip call, or None if it is something else or contains a placeholder for a person."""
    match = _ANY_PIP.match(part.strip())
    if not match or filling.names(match["rest"]):
        return None
    words = _words(match["rest"])
    if words is None:
        return None
    packages, flags, extra, index = [], [], [], ""
    while words:
        word = words.pop(0)
        if word in ("--index-url", "-i"):
            index = words.pop(0)
        elif word in _WITH_VALUE:
            extra += [word, words.pop(0)]
        elif word.startswith("-"):
            flags.append(word)
        else:
            packages.append(word)
    return Call(match["python"] or "python", match["verb"], tuple(packages), tuple(flags), index, tuple(extra))


def _words(text: str) -> list[str] | None:
    """The words of a command; None if it is more than one command."""
    try:
        if any(set(word) <= set("();<>|&") for word in shlex.shlex(text, posix=False, punctuation_chars=True)):
            return None
        return shlex.split(text)
    except ValueError:
        return None


def joined(*words: str | Iterable[str]) -> str:
    """Shell words, quoted if needed."""
    flat = [word for group in words for word in ([group] if isinstance(group, str) else group)]
    return " ".join(shlex.quote(word) for word in flat if word)


def name_of(requirement: str) -> str:
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement:
        return canonicalize_name(requirement)
