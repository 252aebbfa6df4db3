"""Lines of text in the width of a terminal, with a colour where a status is named."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.text import Text

from gpudoctor.model import Status
from gpudoctor.plain import plain
from gpudoctor.report import words

COLOURS = {
    Status.PASS: "green",
    Status.SKIP: "dim",
    Status.WARN: "yellow",
    Status.BLOCKED: "dim",
    Status.FAIL: "red",
    Status.ERROR: "magenta",
}
_PASTE = " " * 7
_SHORT = 3  # lines
_NARROWEST, _WIDEST = 24, 100

Lines = Iterator[Text]


@dataclass(frozen=True)
class Page:
    """`verbose` shows every check and all of the evidence."""

    width: int
    verbose: bool

    @classmethod
    def fitting(cls, width: int, verbose: bool) -> Page:
        """Of a terminal of this width: longer lines are hard to read."""
        return cls(max(_NARROWEST, min(width, _WIDEST)), verbose)

    def wrap(self, text: str, first: str = "", rest: str = "") -> list[str]:
        """Lines that begin with `first`, then `rest`; long words such as paths stay whole."""
        lines = textwrap.wrap(
            plain(text),
            self.width,
            initial_indent=plain(first),
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return lines or [first.rstrip()]

    def short(self, text: str, first: str = "", rest: str = "") -> list[str]:
        """As wrap, but no more than a few lines unless everything was asked for."""
        lines = self.wrap(" ".join(text.split()), first, rest)
        if self.verbose or len(lines) <= _SHORT:
            return lines
        return [*lines[: _SHORT - 1], cut(lines[_SHORT - 1] + " …", self.width)]

    def paragraph(self, text: str, first: str = "", rest: str = "") -> Lines:
        """Nothing for an empty text."""
        if text:
            yield from map(Text, self.wrap(text, first, rest))

    def printed(self, lines: Lines, colours: bool) -> str:
        text = io.StringIO()
        # Not the console of stdout: even its capture() writes there, and ends the program if nobody reads. In a notebook rich
        # would show the lines, and write none.
        system: Literal["standard"] | None = "standard" if colours else None
        console = Console(file=text, width=self.width, color_system=system, force_terminal=colours, force_jupyter=False)
        for line in lines:
            console.print(line, soft_wrap=True)
        return text.getvalue()


def cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"


def signed(status: Status, lines: Sequence[str]) -> Lines:
    """Lines of which the first shows the sign of a status, in its colour."""
    first, *rest = map(Text, lines)
    start = first.plain.index(words.SIGNS[status])
    named = words.label(status)
    first.stylize(COLOURS[status], start, start + len(named if named in first.plain else words.SIGNS[status]))
    return iter([first, *rest])


def to_paste(text: str) -> Lines:
    """Commands stand alone and are never broken."""
    for line in text.splitlines():
        yield Text(_PASTE + plain(line), "bold")
