"""Redaction of what leaves this machine in a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor import screen

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup


@dataclass(frozen=True)
class Sharing:
    """The redaction options. words: more words to redact. same_map: reuse the tokens of the last report."""

    no_redact: bool = False
    keep: tuple[str, ...] = ()
    same_map: bool = False
    words: tuple[str, ...] = ()


def chosen(given: dict[str, Any]) -> Sharing:
    """Takes the options of options.sharing out of a command's parameters."""
    how = Sharing(given.pop("no_redact"), given.pop("keep"), given.pop("same_map"), given.pop("redact_words"))
    if how.no_redact and (how.keep or how.same_map or how.words):
        raise click.UsageError("--no-redact cannot be used with --keep, --redact-word or --same-map.")
    if how.words:
        from gpudoctor.redaction import own_words

        own_words.refuse(how.words)
    return how


def goes_to_terminal(destination: Path | None) -> bool:
    """Whether a person reads the output here: then it is not redacted, and its commands can be pasted."""
    return destination is None and sys.stdout is not None and sys.stdout.isatty()


def leaving(
    found: Checkup,
    how: Sharing,
    to_terminal: bool = False,
    name: str = "",
    beside: str = "",
    tokens: Mapping[str, Mapping[str, str]] | None = None,
) -> Checkup:
    """The checkup as it may leave this machine; stderr lists what was replaced (in `name`). `beside`, tokens: as for redacted."""
    if how.no_redact or to_terminal:
        return found
    from gpudoctor import checkup
    from gpudoctor.redaction import private_map

    if how.same_map and tokens is None:
        tokens = private_map.latest(private_map.read(private_map.default_path()))
    shared = checkup.redacted(found, how.keep, how.words, tokens, beside, warn=warn)
    if shared.redaction and shared.redaction.tokens.counts():
        screen.note(f"{name}{shared.redaction.summary()}; to keep them: --no-redact or --keep KIND.")
    return shared


def warn(said: str) -> None:
    screen.note(f"Warning: {said}")
