"""The private map: what each token replaces, for the last reports. Only its owner can read the file, and no output has it.

With it the owner can look up what "host-2" means, and a fleet gets the same tokens in all its reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from gpudoctor import folders, state
from gpudoctor.errors import UserError
from gpudoctor.redaction.tokens import TOKEN

SCHEMA = "gpudoctor.redaction-map/1"
MOST_REPORTS = 20

Token = Annotated[str, msgspec.Meta(pattern=rf"^(?:{TOKEN.pattern}|subnet-\d+)$")]
Words = dict[str, dict[Token, str]]  # word -> token -> value: "user" -> "user-1" -> the name


class Map(msgspec.Struct, frozen=True, kw_only=True):
    """reports: when a snapshot was taken -> its tokens, the latest report last."""

    schema: str
    reports: dict[str, Words]


class NotAMap(UserError):
    """The file was written by another program, or by a newer gpudoctor."""


def default_path() -> Path:
    return folders.state() / "redaction-map.json"


def read(path: Path) -> Map:
    """Empty if there is no file; UserError if it cannot be read."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Map)
    except FileNotFoundError:
        return Map(schema=SCHEMA, reports={})
    except OSError as failure:
        raise UserError(f"{path} cannot be read: {failure.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        raise NotAMap(f"{path} is not a redaction map of gpudoctor: {failure}") from None
    if found.schema != SCHEMA:
        raise NotAMap(f"{path} is not a redaction map that this version reads: its schema is {found.schema!r}")
    return found


def latest(found: Map) -> Words:
    return next(reversed(found.reports.values()), {})


def added(found: Map, taken: str, words: Mapping[str, Mapping[str, str]]) -> Map:
    """Adds the tokens of a report to those of its earlier redactions, or of another report from the same second.

    A token with different values in the two is dropped as ambiguous.
    """
    words = _together(found.reports.get(taken, {}), words)
    if not any(words.values()):
        return found
    others = {when: tokens for when, tokens in found.reports.items() if when != taken}
    kept = list(others.items())[-(MOST_REPORTS - 1) :]
    return Map(schema=SCHEMA, reports={**dict(kept), taken: {word: dict(tokens) for word, tokens in words.items()}})


def _together(known: Words, words: Mapping[str, Mapping[str, str]]) -> Words:
    both = {word: {**known.get(word, {}), **words.get(word, {})} for word in {**known, **words}}
    return {
        word: {token: value for token, value in values.items() if known.get(word, {}).get(token, value) == value}
        for word, values in both.items()
    }


def write(path: Path, new: Map) -> None:
    """Writes the map, at no time readable by other users. OSError if it cannot be written."""
    state.write(path, msgspec.json.format(msgspec.json.encode(new), indent=1) + b"\n")
