"""What the tokens of a report that leaves this machine stand for, kept in the private map of its owner."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from gpudoctor.redaction import Redacted


def remember(taken: str, done: Redacted) -> str:
    """Writes the private map; taken: when the report was. A map that cannot be written costs nothing but what it would have told.

    One that this version does not read, as a newer one wrote it, is put aside. Returns what is to be said of that, or "".
    """
    from gpudoctor.redaction import private_map

    words = done.tokens.private()
    path = private_map.default_path()
    if not words:
        return ""
    try:
        with private_map.locked(path):
            return _added(path, taken, words)
    except OSError as failure:
        return f"{path} cannot be written ({failure.strerror}): nobody can tell later what a token stands for."
    except UserError as failure:
        return f"{failure}: nobody can tell later what a token stands for."


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
