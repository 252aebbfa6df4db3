"""Stores what the tokens of a report replace in the owner's private map, and looks them up there."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpudoctor.model import Snapshot
    from gpudoctor.redaction import Redacted


def remember(taken: str, done: Redacted) -> str:
    """Writes the private map; taken: the time of the report. If it cannot be written, only the look-up is lost.

    A map that this version cannot read, such as one of a newer version, is renamed. Returns a message about problems, or "".
    """
    from gpudoctor import state
    from gpudoctor.redaction import private_map

    words = done.tokens.private()
    if not words:
        return ""
    lost = "you will not be able to look up what a token stands for."
    try:
        path = private_map.default_path()
        with state.locked(path):
            return _added(path, taken, words)
    except OSError as failure:
        return f"{path} cannot be written ({failure.strerror}): {lost}"
    except UserError as failure:
        return f"{failure}: {lost}"


def tokens_of(text: str, taken: str) -> Mapping[str, Mapping[str, str]]:
    """Token -> value for a report that was redacted here; taken: the time of the report."""
    from gpudoctor.redaction import tokens

    if not tokens.PRESENT.search(text):
        return {}
    return _known(taken)


def recognised(text: str, taken: str) -> str:
    """Replaces tokens by their values if the report was redacted here; taken: the time of the report."""
    from gpudoctor.redaction import tokens

    values = {token: value for held in tokens_of(text, taken).values() for token, value in held.items()}
    return tokens.PRESENT.sub(lambda found: values.get(found[0], found[0]), text)


def restored(snapshot: Snapshot) -> Snapshot:
    """The snapshot with names in the place of its tokens, as far as they are known here."""
    from gpudoctor import redaction
    from gpudoctor.redaction import tokens, walking

    if not redaction.was_redacted(snapshot):
        return snapshot
    values = {token: value for held in _known(snapshot.taken).values() for token, value in held.items()}
    return walking.walked(snapshot, lambda text: tokens.PRESENT.sub(lambda found: values.get(found[0], found[0]), text))


def _known(taken: str) -> Mapping[str, Mapping[str, str]]:
    from gpudoctor import folders
    from gpudoctor.redaction import private_map

    try:
        return private_map.known(private_map.read(private_map.default_path()), taken)
    except folders.NoHome:
        return {}


def _added(path: Path, taken: str, words: dict[str, dict[str, str]]) -> str:
    from gpudoctor.redaction import private_map

    said = ""
    try:
        known = private_map.read(path)
    except private_map.NotAMap as failure:
        known = private_map.Map(schema=private_map.SCHEMA, reports={})
        names = (path.with_name(f"{path.name}.old{number or ''}") for number in itertools.count())
        aside = next(name for name in names if not name.exists())
        path.replace(aside)
        said = f"{failure}. It is {aside.name} now, and a new one begins."
    private_map.write(path, private_map.added(known, taken, words))
    return said
