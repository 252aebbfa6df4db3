"""The texts given as evidence: logs, tracebacks, output of other tools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gpudoctor.facts import passed_tests, recurring, sessions, threads, wrapped
from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.kernel_log import log_line
from gpudoctor.facts.replies import Replies

PREFIX = "text:"
EMPTY_LINES = 2  # empty lines are not kept; up to this many do not end a passage
LINE_CHARACTERS = 2000  # kept at each end of a very long line, and on each side of its relevant part
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
_OF_FORUMS = str.maketrans({"\xa0": " ", "\u200b": None, "\ufeff": None})
_OF_RUNNER = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z ?")  # GitHub Actions writes it before each line
_QUOTED = re.compile(r"^(?:> )+")  # of a mail or in Markdown


@dataclass(frozen=True)
class Passage:
    """Consecutive lines, joined; `first` is the number of the first line in its text."""

    first: int
    text: str

    def line_of(self, position: int) -> int:
        return self.first + self.text.count("\n", 0, position)


@dataclass(frozen=True)
class Text(Guarded):
    """The kept part of a text. kinds: the formats that gpudoctor recognised in it."""

    name: str
    kinds: tuple[str, ...]
    total_lines: int
    left_out: int
    lines: tuple[tuple[int, str], ...]

    @property
    def is_documentation(self) -> bool:
        """It quotes messages and does not describe a machine."""
        return "documentation" in self.kinds

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        """The passages without the logger's prefixes of kernel messages."""
        return tuple(_passages(self.lines))

    @cached_property
    def unwrapped(self) -> Text:
        """The passages with lines that a terminal broke, in which they are whole."""
        counts = [line for line in self.lines if not any(first <= line[0] <= last for first, last in self.past)]
        return replace(self, lines=wrapped.joined(counts))

    @cached_property
    def thinned(self) -> Text:
        """This text without the lines that only repeat others; itself if it is not long."""
        lines = recurring.thinned(self.lines)
        return self if len(lines) == len(self.lines) else replace(self, lines=tuple(lines))

    @cached_property
    def past(self) -> tuple[tuple[int, int], ...]:
        """First and last lines of what does not count: output of tests that passed, commands that succeeded later, and what
        others saw."""
        lines = self.thinned.lines
        of_others = (*sessions.hearsay(lines), *threads.over(lines))
        return (*self.of_passed_tests, *sessions.mended(lines), *sessions.acknowledged(lines), *of_others)

    @cached_property
    def of_passed_tests(self) -> tuple[tuple[int, int], ...]:
        """First and last lines of the output of tests that passed: errors in it were expected."""
        return tuple(passed_tests.spans(self.lines)) if "pytest output" in self.kinds else ()


class Texts(Guarded):
    """All texts of a snapshot, in the order in which they were given."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def all(self) -> tuple[Text, ...]:
        """Without the lines of long logs that only repeat others."""
        return self._replies.once("texts", lambda: tuple(text.thinned for text in self.whole))

    @property
    def whole(self) -> tuple[Text, ...]:
        """With all lines that were kept."""
        return self._replies.once("whole texts", self._read)

    def _read(self) -> tuple[Text, ...]:
        found = self._replies.starting_with(PREFIX)
        return tuple(_text(name.removeprefix(PREFIX), reply.value) for name, reply in found.items() if reply.status == "ok")

    @property
    def words(self) -> str:
        return "\n".join(line for text in self.all for _, line in text.lines)

    @property
    def alone(self) -> bool:
        """Whether there are only texts and no answers of a machine."""
        return bool(self.all) and not self._replies.starting_with("identity")


def of_words(name: str, words: str) -> Text:
    """What a program printed, as a text that was given as evidence."""
    lines = tuple((number, text) for number, line in enumerate(words.split("\n"), 1) if (text := plain_line(line)).strip())
    return Text(name, (), words.count("\n") + 1, 0, lines)


def plain_line(line: str) -> str:
    """Without what terminals, runners and forums add; only the last text of a progress bar, only the ends of a very long line."""
    text = _COLOURS.sub("", line).rstrip("\r\n").replace("\0", "")
    if "\r" in text:
        text = text.rsplit("\r", 1)[-1]
    if "\xa0" in text or "\u200b" in text or "\ufeff" in text:
        text = text.translate(_OF_FORUMS)
    if text[10:11] == "T" and text[27:28] == "Z":
        text = _OF_RUNNER.sub("", text)
    if text.startswith("> "):
        text = _QUOTED.sub("", text)
    if len(text) > 2 * LINE_CHARACTERS:
        text = f"{text[:LINE_CHARACTERS]} … {text[-LINE_CHARACTERS:]}"
    return text


def _text(name: str, value: dict[str, Any]) -> Text:
    lines = tuple((number, text) for number, text in value["lines"])
    return Text(name, tuple(value["kinds"]), value["total_lines"], value["left_out"], lines)


def _passages(lines: tuple[tuple[int, str], ...]) -> Iterator[Passage]:
    joined: list[str] = []
    first = following = 0
    for number, text in lines:
        if joined and number - following > EMPTY_LINES:
            yield Passage(first, "\n".join(joined))
            joined = []
        joined += [""] * (number - following if joined else 0)
        first = first if joined else number
        joined.append(log_line(text).text if "kernel" in text or text.lstrip().startswith(("[", "<")) else text)
        following = number + 1
    if joined:
        yield Passage(first, "\n".join(joined))
