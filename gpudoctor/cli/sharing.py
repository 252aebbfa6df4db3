"""Redaction: of what is written to be shared, and of everything else on request."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor import screen, settings
from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup

VARIABLE = "GPUDOCTOR_REDACT"
_YES, _NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class Sharing:
    """The redaction options. words: more words to redact. same_map: reuse the tokens of the last report."""

    redact: bool = False
    no_redact: bool = False
    keep: tuple[str, ...] = ()
    same_map: bool = False
    words: tuple[str, ...] = ()

    def is_for_all(self, is_saved: bool = False) -> bool:
        """Whether what the owner reads is redacted too. is_saved: a snapshot is written, which the other options can be about."""
        if self.no_redact:
            return False
        return self.redact or is_set() or (not is_saved and bool(self.keep or self.same_map or self.words))


def chosen(given: dict[str, Any]) -> Sharing:
    """Takes the options of options.sharing out of a command's parameters."""
    how = Sharing(*(given.pop(name) for name in ("redact", "no_redact", "keep", "same_map", "redact_words")))
    if how.no_redact and (how.redact or how.keep or how.same_map or how.words):
        raise click.UsageError("--no-redact cannot be used with --redact, --keep, --redact-word or --same-map.")
    if how.words:
        from gpudoctor.redaction import own_words

        own_words.refuse(how.words)
    return how


def is_set() -> bool:
    """Whether the user wants all output redacted without asking each time. UserError for a value that is neither yes nor no."""
    value = os.environ.get(VARIABLE, "").strip().lower()
    if value not in (*_YES, *_NO):
        raise UserError(f"{VARIABLE}={value} is neither 1 nor 0")
    return value in _YES if value else bool(settings.current().redact)


def leaving(
    found: Checkup,
    how: Sharing,
    beside: str = "",
    tokens: Mapping[str, Mapping[str, str]] | None = None,
) -> Checkup:
    """The checkup as it may leave this machine. `beside`, tokens: as for redacted."""
    if how.no_redact:
        return found
    from gpudoctor import checkup
    from gpudoctor.redaction import private_map

    if how.same_map and tokens is None:
        tokens = private_map.latest(private_map.read(private_map.default_path()))
    return checkup.redacted(found, how.keep, how.words, tokens, beside, warn=warn)


def tell_shown(shown: Checkup, name: str = "") -> None:
    """Lists on stderr what was replaced in what is printed; `name` comes before it."""
    if shown.redaction and shown.redaction.tokens.counts():
        screen.note(f"{name}{shown.redaction.summary()}; to keep them: --no-redact or --keep KIND.")


def tell_written(path: Path, written: Checkup, verb: str = "Wrote") -> None:
    """Says on stderr which file was written, and whether it can be shared."""
    if written.redaction:
        screen.note(f"{verb} {path}, redacted: {written.redaction.counted() or 'nothing private was left in it'}")
    else:
        screen.note(f"{verb} {path}, not redacted: --redact makes it safe to share")


def warn(said: str) -> None:
    screen.note(f"Warning: {said}")
