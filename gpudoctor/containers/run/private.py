"""Secrets in a `docker run` command: they are passed on in the environment, which other users cannot see, and are not shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import cache

from gpudoctor.containers.run.words import pairs
from gpudoctor.redaction.credentials import Credentials
from gpudoctor.redaction.secret_forms import HARMLESS, NAME_OF_SECRET
from gpudoctor.redaction.tokens import Tokens

SECRET, HIDDEN = "<redacted:secret>", "REDACTED"  # the first one would be a redirection in a shell
_VARIABLE = re.compile(r"(?P<option>--env=|-e=?|)(?P<name>[^=]+)=(?P<value>.*)", re.DOTALL)
_OF_ENGINE = re.compile(
    r"""
    (?: DOCKER | CONTAINERS? | PODMAN | BUILDAH | REGISTRY | XDG | LD | SSL )_\w*
    | PATH | HOME | TMPDIR | GO[A-Z]+
    """,
    re.VERBOSE,
)
"""Variables that the engine's own command reads: passing one on in its environment would change what it does."""


def passed_on(words: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The options with `-e NAME` instead of `-e NAME=SECRET`; and NAME -> SECRET, for the environment of the engine's command."""
    options: list[str] = []
    environment: dict[str, str] = {}
    for piece in pairs(words):
        found = _secret(piece)
        if found and not _OF_ENGINE.fullmatch(found["name"]):
            environment[found["name"]] = found["value"]
            piece = _without_value(piece, found)
        options += piece
    return tuple(options), environment


def shown(piece: Sequence[str]) -> str:
    """Words for a shell, without secrets."""
    found = _secret(piece)
    return (
        shlex.join(_without_value(piece, found)) if found else _credentials().dropped(shlex.join(piece)).replace(SECRET, HIDDEN)
    )


def _secret(piece: Sequence[str]) -> re.Match[str] | None:
    found = _VARIABLE.fullmatch(piece[-1])
    if not found or not (found["option"] or piece[0] in ("-e", "--env")) or not found["value"]:
        return None
    is_named = NAME_OF_SECRET.search(found["name"].upper()) and not HARMLESS.fullmatch(found["value"])
    return found if is_named or _credentials().dropped(piece[-1]) != piece[-1] else None


def _without_value(piece: Sequence[str], found: re.Match[str]) -> list[str]:
    return [*piece[:-1], found["option"] + found["name"]]


@cache
def _credentials() -> Credentials:
    return Credentials(Tokens())
