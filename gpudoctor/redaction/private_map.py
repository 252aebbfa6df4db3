"""The private map: what each token replaces in each report. Only its owner can read the file, and no output has it.

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
MOST_BYTES = 4 << 20
MOST_SAME = 20_000

Token = Annotated[str, msgspec.Meta(pattern=rf"^(?:{TOKEN.pattern}|subnet-\d+)$")]
Words = dict[str, dict[Token, str]]  # word -> token -> value: "user" -> "user-1" -> the name


class Map(msgspec.Struct, frozen=True, kw_only=True):
    """reports: when a snapshot was taken -> its tokens, the latest last. same: of one with the same tokens -> that in reports."""

    schema: str
    reports: dict[str, Words]
    same: dict[str, str] = {}


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
        raise UserError(f"cannot read {path}: {failure.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        raise NotAMap(f"{path} is not a redaction map of gpudoctor: {failure}") from None
    if found.schema != SCHEMA:
        raise NotAMap(f"{path} is not a redaction map that this version reads: its schema is {found.schema!r}")
    return found


def latest(found: Map) -> Words:
    return next(reversed(found.reports.values()), {})


def known(found: Map, taken: str) -> Words:
    """The tokens of one report."""
    return found.reports.get(found.same.get(taken, taken), {})


def added(found: Map, taken: str, words: Mapping[str, Mapping[str, str]]) -> Map:
    """Adds the tokens of a report to those of its earlier redactions, or of another report from the same second.

    A token with different values in the two is dropped as ambiguous.
    """
    words = _together(known(found, taken), words)
    if not any(words.values()):
        return found
    groups = [(held, [when for when in reports if when != taken]) for held, reports in _groups(found)]
    equal = [when for held, reports in groups if held == words for when in reports]
    return _bounded([*(group for group in groups if group[0] != words and group[1]), (words, [*equal, taken])])


def _groups(found: Map) -> list[tuple[Words, list[str]]]:
    """Tokens, and the reports that have them."""
    reports = {when: [when] for when in found.reports}
    for when, of in found.same.items():
        reports.get(of, []).append(when)
    return [(words, reports[when]) for when, words in found.reports.items()]


def _bounded(groups: list[tuple[Words, list[str]]]) -> Map:
    """Without the oldest ones, if they are more than the file may hold."""
    room, kept = MOST_BYTES, 0
    for words, reports in reversed(groups):
        room -= len(msgspec.json.encode((words, reports)))
        if room < 0 and kept:
            break
        kept += 1
    last = [(words, reports[-MOST_SAME:]) for words, reports in groups[-kept:]]
    same = {when: reports[0] for _, reports in last for when in reports[1:]}
    return Map(schema=SCHEMA, reports={reports[0]: words for words, reports in last}, same=same)


def _together(old: Words, words: Mapping[str, Mapping[str, str]]) -> Words:
    both = {word: {**old.get(word, {}), **words.get(word, {})} for word in {**old, **words}}
    return {
        word: {token: value for token, value in values.items() if old.get(word, {}).get(token, value) == value}
        for word, values in both.items()
    }


def write(path: Path, new: Map) -> None:
    """Writes the map, at no time readable by other users. OSError if it cannot be written."""
    state.write(path, msgspec.json.format(msgspec.json.encode(new), indent=1) + b"\n")
