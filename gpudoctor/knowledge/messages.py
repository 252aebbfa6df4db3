"""Messages of programs and their meaning: the tables in `messages/`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpudoctor import compiled
from gpudoctor.knowledge.literals import literals as literals_of
from gpudoctor.model import Action, Fix, Kind, Place, Problem, Status, Syntax, on_platforms

TEXTS = "messages"
"""The check that searches texts for the messages of all tables except those in IN_ORDER."""
IN_ORDER = {
    "container-start": (
        *("engine_requests", "engine_hooks", "engine_driver"),  # about GPUs: the other tables also match words such as cgroup
        *("engine_daemons", "engine_networks", "engine_hosts", "engine_commands", "engine_fields"),
    ),
    "toolchain-ladder": ("compilers",),
}
"""Check -> the tables that only this check reads, in search order: the first row that matches counts."""
EXPLAINED = (TEXTS, "container-start")
"""The checks whose messages `gpudoctor explain` recognises. In a text, compiler messages are judged by the rows of texts."""

_NAMED = re.compile(r"(?<!\?P)<(\w+)>")


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message with which a program reports that something is wrong.

    pattern: a regular expression; in the file also a list of alternatives, and {name} for a part of its table. words: a sentence
    that describes the fault, with the pattern's groups in braces. confidence: how certain `problem` is from the message alone.
    causes: problems that would explain it, the likeliest first. decide: the one command that distinguishes them. samples: texts
    that must match; never: texts that must not match. fixes: replace the problem's fixes if only this message is known. read:
    when the source was read; known: "field" if the source is experience, "unverified" if it was not read.

    For texts: wraps: any other failure in the text explains this one, as for the last line of a launcher. clue: reported only if
    it explains something else. fails: the program has stopped, so this is not a warning. over: a pattern for a later line that
    reports success, with this pattern's groups as <name>. unless: a pattern that makes the message harmless, anywhere in the
    text. anchor: a literal that replaces those of the pattern. general: a rule, which counts only on lines that no other row
    explains; of several rules, the first.
    For engines: causes are links of the chain, in the order in which they are ruled out; with unknown confidence only the host
    can distinguish them; `mostly`: the likeliest one from a text alone.
    For compilers: because_of: the cause at a rung of the ladder, if it is not the first of `causes`.
    """

    id: str
    pattern: str
    problem: str
    samples: tuple[str, ...]
    words: str = "{said}"
    confidence: Literal["confirmed", "likely", "unknown"] = "confirmed"
    source: tuple[str, ...] = ()
    read: date | None = None
    known: Literal["", "field", "unverified"] = ""
    causes: tuple[str, ...] = ()
    decide: str = ""
    never: tuple[str, ...] = ()
    fixes: tuple[_Way, ...] = ()
    wraps: bool = False
    clue: bool = False
    general: bool = False
    fails: bool = False
    over: str = ""
    unless: str = ""
    anchor: str = ""
    mostly: str = ""
    because_of: Mapping[str, str] = {}

    @property
    def regex(self) -> re.Pattern[str]:
        return _compiled(self.pattern)

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """The places in a text, in order. A pattern for one line is searched only in lines with one of its literals."""
        if not any(literal in text for literal in self.literals):
            return
        if self.anchor or not _is_for_one_line(self.pattern):
            yield from self.regex.finditer(text)
            return
        for start, end in sorted({span for literal in self.literals for span in _lines_with(literal, text)}):
            yield from self.regex.finditer(text, start, end)

    def means(self, problem: Problem) -> Problem:
        """The problem with the fixes that this message allows."""
        return replace(problem, fixes=ways(self.fixes)) if self.fixes else problem

    def ended_well(self, groups: Mapping[str, str | None], after: str) -> bool:
        """Whether the text after this message reports success."""
        return bool(self.over) and bool(
            re.search(_NAMED.sub(lambda name: re.escape(groups.get(name[1]) or "") or r"\S*", self.over), after)
        )

    @property
    def literals(self) -> tuple[str, ...]:
        """Every text that matches contains one of these strings; taken from the pattern unless the row names an anchor."""
        return (self.anchor,) if self.anchor else _literals(self.pattern)

    @property
    def kept(self) -> tuple[str, ...]:
        """Literals of all lines that matter: only such lines of a long text are kept."""
        others = (self.unless, _NAMED.sub(r"\\S+", self.over))
        return (*self.literals, *(literal for pattern in others if pattern for literal in _literals(pattern)))


LEAST_WORDS = 6  # characters that a search for messages needs
LONGEST_LINE = 200
MOST_LINES = 5


class _Way(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fix. commands: one for each platform; they replace `command` and `on`."""

    title: str
    command: str = ""
    commands: Mapping[str, str] = {}
    risk: str = "safe"
    needs: tuple[str, ...] = ()
    verify: str = ""
    on: tuple[str, ...] = ()
    undo: str = ""
    recipe: str = ""
    kind: Kind = "manual"
    where: Place = "here"
    reboot: bool = False
    engines: tuple[str, ...] = ()
    kinds: Mapping[str, Kind] = {}
    undos: Mapping[str, str] = {}
    syntax: Syntax = "bash"

    def fixes(self) -> tuple[Fix, ...]:
        fields = {
            name: value for name, value in msgspec.structs.asdict(self).items() if name not in ("commands", "kinds", "undos")
        }
        fix = Fix(**fields)
        return on_platforms(fix, self.commands, self.kinds, self.undos) if self.commands else (fix,)


class _Cause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    title: str
    why: str
    action: Action
    fixes: tuple[_Way, ...]
    status: Literal["fail", "warn", "note"] = "fail"
    references: tuple[str, ...] = ()


class _Raw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file as written. parts: pieces of its patterns, which refer to them in braces; a list means alternatives."""

    sources: dict[str, str] = {}
    parts: dict[str, str | tuple[str, ...]] = {}
    messages: tuple[dict[str, Any], ...] = ()
    problems: tuple[Any, ...] = ()


class MessageTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file: the sources of its rows, the messages of one topic, and the problems that only messages report."""

    sources: dict[str, str] = {}
    messages: tuple[Message, ...] = ()
    problems: tuple[_Cause, ...] = ()


@cache
def topics(check: str = TEXTS) -> tuple[str, ...]:
    """The tables that a check reads; those of texts are sorted by name."""
    if check != TEXTS:
        return IN_ORDER[check]
    alone = {topic for of_check in IN_ORDER.values() for topic in of_check}
    return tuple(topic for topic in _files() if topic not in alone)


def tables() -> dict[str, MessageTable]:
    """Topic -> its table, sorted by topic."""
    return {topic: table(topic) for topic in _files()}


@cache
def table(topic: str) -> MessageTable:
    return decoded(compiled.as_json(_files()[topic]))


def decoded(json: bytes) -> MessageTable:
    """A table with complete patterns: alternatives are joined, and {name} is replaced by the part with that name."""
    raw = msgspec.json.decode(json, type=_Raw)
    parts = {name: part if isinstance(part, str) else f"(?:{'|'.join(part)})" for name, part in raw.parts.items()}
    rows = [{**row, "pattern": _joined(row["pattern"], parts)} for row in raw.messages]
    return msgspec.convert({"sources": raw.sources, "messages": rows, "problems": raw.problems}, MessageTable)


@cache
def messages(check: str = TEXTS) -> tuple[Message, ...]:
    return tuple(message for topic in topics(check) for message in table(topic).messages)


def explained() -> Iterator[Message]:
    return (message for check in EXPLAINED for message in messages(check))


def first(check: str, text: str) -> Message | None:
    """The first row of a check's tables that matches."""
    return next((message for message in messages(check) if message.regex.search(text)), None)


@cache
def problems(check: str = TEXTS) -> dict[str, Problem]:
    """The problems that are reported only by the messages of a check, by id."""
    return {cause.id: _problem(cause) for topic in topics(check) for cause in table(topic).problems}


def anchors() -> tuple[str, ...]:
    """The literals of all messages of texts, each once, and those of any Python error."""
    return tuple(dict.fromkeys((*(literal for message in messages() for literal in message.kept), "Error: ", "Exception: ")))


def with_words(text: str) -> list[tuple[str, str]]:
    """Sample lines that contain the words, case-insensitive, each with its problem; the shortest line for each problem."""
    words = " ".join(text.lower().split())
    if len(words) < LEAST_WORDS:
        return []
    found: dict[str, str] = {}
    for message in explained():
        for line in (line.strip() for sample in message.samples for line in sample.splitlines()):
            if words in line.lower() and len(line) < len(found.get(message.problem, "x" * LONGEST_LINE)):
                found[message.problem] = line
    shortest = sorted(found.items(), key=lambda entry: len(entry[1]))
    return [(line, problem) for problem, line in shortest[:MOST_LINES]]


def _problem(cause: _Cause) -> Problem:
    status = Status.PASS if cause.status == "note" else Status(cause.status)
    return Problem(cause.id, cause.title, cause.why, cause.action, ways(cause.fixes), cause.references, status)


def ways(rows: tuple[_Way, ...]) -> tuple[Fix, ...]:
    return tuple(fix for row in rows for fix in row.fixes())


@cache
def _files() -> dict[str, Path]:
    return {file.stem: file for file in sorted(Path(__file__).with_name("messages").glob("*.yaml"))}


def _joined(pattern: str | list[str], parts: Mapping[str, str]) -> str:
    whole = pattern if isinstance(pattern, str) else "|".join(pattern)
    return re.sub(r"\{(\w+)\}", lambda name: parts.get(name[1], name[0]), whole) if parts else whole


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@cache
def _is_for_one_line(pattern: str) -> bool:
    """Whether nothing in a pattern can match a newline or the end of a text."""
    return not _OVER_LINES.search(_NO_NEWLINE.sub("", pattern))


_NO_NEWLINE = re.compile(r"\[\^[^\]]*\\n[^\]]*\]")
_OVER_LINES = re.compile(r"\\[nsWDZA]|\\S\]|\(\?s|\[\^|\$|\n")


def _lines_with(literal: str, text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each line with a literal."""
    at = text.find(literal)
    while at >= 0:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text.rfind("\n", 0, at) + 1, end
        at = text.find(literal, end)


@cache
def _literals(pattern: str) -> tuple[str, ...]:
    known = _of_all_patterns().get(pattern)
    return literals_of(pattern) if known is None else known


@cache
def _of_all_patterns() -> dict[str, tuple[str, ...]]:
    """The literals of the patterns of texts: parsing all of them takes longer than judging a short text."""

    def made() -> list[tuple[str, tuple[str, ...]]]:
        patterns = dict.fromkeys(message.pattern for message in messages() if not message.anchor)
        return [(pattern, literals_of(pattern)) for pattern in patterns]

    files = (*_files().values(), Path(__file__), Path(__file__).with_name("literals.py"))
    return {pattern: tuple(found) for pattern, found in compiled.made_once("literals", files, made)}
