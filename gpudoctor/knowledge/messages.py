"""Messages of programs and what they mean: the tables in `messages/`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from gpudoctor.model import Action, Fix, Problem, Status

_NAMED = re.compile(r"(?<!\?P)<(\w+)>")


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words by which a program says that something is wrong.

    words: that, in a sentence, with the pattern's groups in braces. confidence: how surely the words alone mean `problem`.
    causes: problems that would explain it, the likeliest first. decide: the one command that tells them apart. samples: texts
    that must match; never: that must not. fixes: in place of the problem's, where these words are all that is known. wraps: any
    failure that the text tells beside it explains it, as it does the last line of a launcher. clue: alone it means nothing; it is
    told where it explains something else. fails: who says it has stopped, so that it is no warning. over: what the text tells
    further down where it ended well, with the pattern's groups as <name>. unless: what, anywhere in the text, makes the words
    harmless. read: when the source was read; known: "field" where experience is the source.
    """

    id: str
    pattern: str
    problem: str
    words: str
    confidence: Literal["confirmed", "likely", "unknown"]
    samples: tuple[str, ...]
    source: tuple[str, ...] = ()
    read: date | None = None
    known: Literal["", "field"] = ""
    causes: tuple[str, ...] = ()
    decide: str = ""
    never: tuple[str, ...] = ()
    fixes: tuple[_Way, ...] = ()
    wraps: bool = False
    clue: bool = False
    fails: bool = False
    over: str = ""
    unless: str = ""
    anchor: str = ""

    @property
    def regex(self) -> re.Pattern[str]:
        return _compiled(self.pattern)

    def means(self, problem: Problem) -> Problem:
        """The problem with the ways out that these words allow."""
        return replace(problem, fixes=_ways(self.fixes)) if self.fixes else problem

    def ended_well(self, groups: Mapping[str, str | None], after: str) -> bool:
        """Whether what the text tells after these words says so."""
        return bool(self.over) and bool(
            re.search(_NAMED.sub(lambda name: re.escape(groups.get(name[1]) or "") or r"\S*", self.over), after)
        )

    @property
    def literals(self) -> tuple[str, ...]:
        """Strings of which one is in every text that matches: found in the pattern where the row names none."""
        return (self.anchor,) if self.anchor else _literals(self.pattern)

    @property
    def kept(self) -> tuple[str, ...]:
        """Literals of all lines that decide: of a long text no others are kept."""
        others = (self.unless, _NAMED.sub(r"\\S+", self.over))
        return (*self.literals, *(literal for pattern in others if pattern for literal in _literals(pattern)))


LEAST_WORDS = 6  # characters by which messages are looked for
LONGEST_LINE = 200
MOST_LINES = 5


class _Way(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    command: str = ""
    risk: str = "safe"
    needs: tuple[str, ...] = ()
    verify: str = ""
    on: tuple[str, ...] = ()
    undo: str = ""


class _Cause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    title: str
    why: str
    action: Action
    fixes: tuple[_Way, ...]
    status: Literal["fail", "warn"] = "fail"
    references: tuple[str, ...] = ()


class MessageTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file: where its rows come from, the messages of one topic, and the problems that no check finds."""

    sources: dict[str, str] = {}
    messages: tuple[Message, ...] = ()
    problems: tuple[_Cause, ...] = ()


@cache
def tables() -> dict[str, MessageTable]:
    """Topic -> its table, in the order of their names."""
    folder = files(__package__).joinpath("messages")
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return {file.name.removesuffix(".yaml"): msgspec.yaml.decode(file.read_bytes(), type=MessageTable) for file in found}


@cache
def messages() -> tuple[Message, ...]:
    return tuple(message for table in tables().values() for message in table.messages)


@cache
def problems() -> dict[str, Problem]:
    """The problems that are known by messages only, by id."""
    return {cause.id: _problem(cause) for table in tables().values() for cause in table.problems}


def anchors() -> tuple[str, ...]:
    """The literals of all messages, each once, and those of any error of Python."""
    return tuple(dict.fromkeys((*(literal for message in messages() for literal in message.kept), "Error: ", "Exception: ")))


def with_words(text: str) -> list[tuple[str, str]]:
    """Lines of samples in which the words stand, in whatever case, and the problem that each means; the shortest line of each."""
    words = " ".join(text.lower().split())
    if len(words) < LEAST_WORDS:
        return []
    found: dict[str, str] = {}
    for message in messages():
        for line in (line.strip() for sample in message.samples for line in sample.splitlines()):
            if words in line.lower() and len(line) < len(found.get(message.problem, "x" * LONGEST_LINE)):
                found[message.problem] = line
    shortest = sorted(found.items(), key=lambda entry: len(entry[1]))
    return [(line, problem) for problem, line in shortest[:MOST_LINES]]


def _problem(cause: _Cause) -> Problem:
    return Problem(cause.id, cause.title, cause.why, cause.action, _ways(cause.fixes), cause.references, Status(cause.status))


def _ways(ways: tuple[_Way, ...]) -> tuple[Fix, ...]:
    return tuple(Fix(**msgspec.structs.asdict(way)) for way in ways)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@cache
def _literals(pattern: str) -> tuple[str, ...]:
    from gpudoctor.knowledge.literals import literals

    return literals(pattern)
