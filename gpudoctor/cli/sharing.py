"""What leaves this machine in a file or a pipe is redacted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpudoctor.model import Opened, Report, Snapshot


@dataclass(frozen=True)
class Sharing:
    """What was asked for. words: more that must go. same_map: the tokens of the last report."""

    no_redact: bool = False
    keep: tuple[str, ...] = ()
    same_map: bool = False
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shared:
    """The snapshot that is to be judged, what a rendered text goes through, and what the tokens stand for."""

    snapshot: Snapshot
    sweep: Callable[[str], str]
    tokens: Mapping[str, Mapping[str, str]] | None = None


def chosen(given: dict[str, Any]) -> Sharing:
    """Takes the options.sharing out of what a command was given."""
    how = Sharing(given.pop("no_redact"), given.pop("keep"), given.pop("same_map"), given.pop("redact_words"))
    if how.no_redact and (how.keep or how.same_map or how.words):
        raise click.UsageError("--no-redact changes nothing: it goes without --keep, --redact-word and --same-map.")
    if how.words:
        from gpudoctor.redaction import own_words

        own_words.refuse(how.words)
    return how


def goes_to_terminal(destination: Path | None) -> bool:
    """What a person reads here is as it is: its commands can be pasted."""
    return destination is None and sys.stdout is not None and sys.stdout.isatty()


def text_or_json(destination: Path | None) -> str:
    """By the name of the file; UsageError for a name of another format."""
    from gpudoctor.report import formats

    named = formats.named(destination, ("text", "json"))
    if named not in (None, "text", "json"):
        raise click.UsageError(f"this is written as text or JSON: -o {destination} would be {named}.")
    return named or "text"


def as_it_is(taken: Snapshot) -> Shared:
    return Shared(taken, lambda text: text)


def shared(
    taken: Snapshot,
    how: Sharing,
    to_terminal: bool = False,
    name: str = "",
    beside: str = "",
    tokens: Mapping[str, Mapping[str, str]] | None = None,
) -> Shared:
    """The snapshot as it may leave this machine. Writes the private map, and says on stderr what was replaced (in `name`).

    beside: what is shown with it, and was redacted before. tokens: of what is compared with it.
    """
    if how.no_redact or to_terminal:
        return as_it_is(taken)
    from gpudoctor import redaction
    from gpudoctor.redaction import private_map, remembering

    if how.same_map and tokens is None:
        tokens = private_map.latest(private_map.read(private_map.default_path()))
    done = redaction.redacted(taken, how.keep, how.words, tokens, beside)
    if failure := remembering.remember(taken.taken, done):
        click.echo(f"Warning: {failure}", err=True)
    if done.tokens.counts():
        click.echo(f"{name}{done.summary()}; --no-redact or --keep KIND leaves them.", err=True)
    return Shared(done.snapshot, done.sweep, done.tokens.private())


def leaving(
    found: Report | Snapshot, name: str, how: Sharing, to_terminal: bool = False, label: str = "", beside: Shared | None = None
) -> tuple[Opened, Shared]:
    """What was read or asked, as it may leave this machine, judged once. beside: what it is compared with has its tokens."""
    from gpudoctor import doctor
    from gpudoctor.files import opening
    from gpudoctor.model import Opened, Report

    tokens = beside.tokens if beside else None
    if isinstance(found, Report):
        answers = shared(opening.as_answers(found), how, to_terminal, label, tokens=tokens)
        return Opened(name, opening.of_answers(answers.snapshot), None), answers
    answers = shared(found, how, to_terminal, label, tokens=tokens)
    return Opened(name, doctor.judge_at_its_level(answers.snapshot), answers.snapshot), answers


def tokens_of(text: str, taken: str) -> Mapping[str, Mapping[str, str]]:
    """What the tokens of a report stand for that was redacted here; taken: when that report was."""
    from gpudoctor.redaction import private_map, tokens

    if not tokens.PRESENT.search(text):
        return {}
    return private_map.read(private_map.default_path()).reports.get(taken, {})


def recognised(text: str, taken: str) -> str:
    """With what its tokens stand for, where it is of a report that was redacted here; taken: when that report was."""
    from gpudoctor.redaction import tokens

    values = {token: value for held in tokens_of(text, taken).values() for token, value in held.items()}
    return tokens.PRESENT.sub(lambda found: values.get(found[0], found[0]), text)
