"""Paths: system folders stay; names chosen by users become tokens, part by part.

So a path below another one stays below it, and a library keeps its name.
"""

from __future__ import annotations

import re
import sys

from gpudoctor.redaction.tokens import PRESENT, Tokens, is_token
from gpudoctor.redaction.vocabulary import (
    KNOWN_ROOTS,
    KNOWN_VERSIONED_ROOTS,
    MADE_BY_TOOLS,
    NAMED_AFTER,
    PACKAGES,
    PATH_WORD_FORMS,
    PATH_WORDS,
    RELATIVE_ROOTS,
    SPLIT_WORDS,
)

_NO_NAME = r"/*?\s\"'():,;<>|&="
HOMES = re.compile(
    rf"""
    (?:^|/)(?: home\d* | homes | Users | run/media )/
    (?!(?:shared|Shared|Public)(?:/|$))
    ( [^{_NO_NAME}]+ (?:\ [A-Z][^{_NO_NAME}]*(?= / | \ [A-Z] | $ ))* )      # a user of Windows may have a first name, too
    (?<![$\#])                               # the end of a prompt
    """,
    re.VERBOSE,
)
_ENDING = re.compile(r"(?:\.(?:[A-Za-z]\w{0,4}|\d{1,9})){1,6}$")
SOURCE = re.compile(r"\.(?:cc?|cpp|cxx|h|hpp|cu|cuh|rs|go)$")  # paths left by whoever built the program
NO_USERS = frozenset({"root", "kubernetes", "linuxbrew", "conda", "conda-bld", "*", "default", "All", "Public"})


class Paths:
    """Replaces the parts of paths."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def users(self, path: str) -> list[str]:
        """The users whose home folders occur in a path."""
        return [name for name in HOMES.findall(path) if is_user(name) and not is_token(name)]

    def replaced(self, path: str) -> str:
        """Replaces the parts of an absolute path, or one that begins with ~, with / as separator."""
        if self._tokens.keeps("user") and self._tokens.keeps("dir"):
            return path
        path = HOMES.sub(self._home, path)
        if self._tokens.keeps("dir"):
            return path
        packages = PACKAGES.search(path)
        head, tail = (path[: packages.end()], path[packages.end() :]) if packages else (path, "")
        return self._head(head) + tail

    def _home(self, found: re.Match[str]) -> str:
        name = found[1]
        return found[0][: -len(name)] + self._tokens("user", name) if is_user(name) else found[0]

    def _head(self, head: str) -> str:
        known = KNOWN_VERSIONED_ROOTS.match(head) or KNOWN_ROOTS.match(head)
        if known:
            return NAMED_AFTER.sub(lambda found: found[0][: -len(found[1])] + self.part(found[1]), head)
        parts = head.split("/")
        if parts[0] in (".", "..") and (any(part in RELATIVE_ROOTS for part in parts[:4]) or SOURCE.search(head)):
            return head
        last = len(parts) - 1
        return "/".join(self.part(part, place == last) for place, part in enumerate(parts))

    def part(self, part: str, is_last: bool = False) -> str:
        """One part of a path; the last part keeps its suffix: file-1.py."""
        name = part.strip()
        if len(name) < 2 or says_nothing(name):
            return part
        for word in ("user", "host", "container", "pod", "group"):
            if name in self._tokens.known(word):
                return self._tokens.known(word)[name]
        ending = _ENDING.search(name) if is_last else None
        if ending and ending[0].startswith(".py") and name[: ending.start()] in sys.stdlib_module_names:
            return part  # it may hide the module of this name
        if ending and ending.start() and says_nothing("x" + ending[0]):
            return self._tokens("file", name[: ending.start()]) + ending[0]
        return self._tokens("dir", name)


def is_user(name: str) -> bool:
    """Whether a folder of /home belongs to a user: if /home is itself a home, it contains .cache and .local."""
    return name not in NO_USERS and not name.startswith(".")


def says_nothing(name: str) -> bool:
    """Whether all words of a name are common words, numbers or tokens."""
    if MADE_BY_TOOLS.fullmatch(name):
        return True
    words = SPLIT_WORDS.split(PRESENT.sub(" ", name.replace("poduuid-", "uuid-")))
    return all(not word or _is_usual(word.lower()) for word in words)


def _is_usual(word: str) -> bool:
    return word in PATH_WORDS or PATH_WORD_FORMS.fullmatch(word) is not None or word.rstrip("0123456789") in PATH_WORDS
