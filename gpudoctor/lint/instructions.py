"""Dockerfile text -> instructions with their lines: continuations, comments between them, heredocs, the escape directive.

Not `dockerfile-parse`: it reads the body of a heredoc as instructions. Not `dockerfile`: it has no wheel for aarch64.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

_MOST, _LONGEST = 20_000, 1 << 18  # instructions, and characters of one
_MOST_HEREDOCS = 100  # of one instruction
_NAMES_TEXT = """
    ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL MAINTAINER ONBUILD RUN SHELL STOPSIGNAL USER VOLUME WORKDIR
"""
_NAMES = frozenset(_NAMES_TEXT.split())
_DIRECTIVE = re.compile(r"#\s*([a-zA-Z][\w-]*)\s*=\s*(\S+)\s*$")
_HEREDOC = re.compile(r"(?:^|(?<=[\s\d;&|(]))<<(-?)(['\"]?)([A-Za-z_]\w*)\2")
_FLAG = re.compile(r"--([a-z][\w-]*)(?:=((?:\"[^\"]*\"|\S)*))?(\s+|$)")


class NoDockerfile(Exception):
    """The text is not a Dockerfile: the line (0: all of it) and why."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True)
class Text:
    """Text with the lines that it was assembled from."""

    text: str
    starts: tuple[tuple[int, int], ...]  # (offset, line), ascending

    def line(self, offset: int) -> int:
        return self.starts[max(bisect_right(self.starts, (offset, 1 << 60)) - 1, 0)][1]

    def after(self, offset: int) -> Text:
        """The text after `offset`."""
        later = tuple((start - offset, line) for start, line in self.starts if start > offset)
        return Text(self.text[offset:], ((0, self.line(offset)), *later))


@dataclass(frozen=True)
class Heredoc:
    """A file within the file; `quoted`: the shell expands no variables."""

    body: Text
    quoted: bool


@dataclass(frozen=True)
class Instruction:
    """One instruction: its flags (`--from=x`), then the rest as written."""

    name: str
    line: int
    end: int
    flags: dict[str, str]
    body: Text
    heredocs: tuple[Heredoc, ...] = ()


@dataclass(frozen=True)
class Parsed:
    instructions: tuple[Instruction, ...]
    escape: str


def parse(text: str) -> Parsed:
    lines = text.removeprefix("\ufeff").splitlines()
    directives = _directives(lines)
    escape = directives.get("escape", "\\")
    own_syntax = "docker/dockerfile" not in directives.get("syntax", "docker/dockerfile")
    found: list[Instruction] = []
    for instruction in _instructions(lines, escape if escape in "\\`" else "\\"):
        if len(found) >= _MOST or len(instruction.body.text) > _LONGEST:
            limit = f"{_MOST} instructions" if len(found) >= _MOST else f"{_LONGEST >> 10} KB in one instruction"
            raise NoDockerfile(instruction.line, f"it has more than {limit}")
        if instruction.name not in _NAMES and not own_syntax:
            # The file may be a link to something else, of which no more than a word is shown.
            named = instruction.name[:20] if instruction.name.isalpha() else "this"
            raise NoDockerfile(instruction.line, f"{named} is not a Dockerfile instruction")
        found.append(instruction)
    if not found:
        raise NoDockerfile(0, "it has no instructions")
    if not any(instruction.name == "FROM" for instruction in found):
        raise NoDockerfile(0, "it has no FROM")
    return Parsed(tuple(found), escape)


def _directives(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        directive = _DIRECTIVE.match(line.strip())
        if not directive:
            break
        found.setdefault(directive[1].lower(), directive[2])
    return found


def _instructions(lines: list[str], escape: str) -> Iterator[Instruction]:
    goes_on = re.compile(re.escape(escape) + r"[ \t]*$")
    at = 0
    places = _Places(lines)
    while at < len(lines):
        if not lines[at].strip() or lines[at].lstrip().startswith("#"):
            at += 1
            continue
        first = at
        pieces: list[tuple[int, str]] = []
        while at < len(lines):
            line = lines[at]
            at += 1
            if pieces and (not line.strip() or line.lstrip().startswith("#")):
                continue
            pieces.append((at, goes_on.sub("", line)))
            if not goes_on.search(line):
                break
        whole = _joined(pieces)
        if not whole.text.strip():
            continue
        name, body = _split(whole)
        heredocs: tuple[Heredoc, ...] = ()
        if name in ("RUN", "COPY", "ADD"):
            heredocs, at = _heredocs(body.text, lines, at, places)
        flags, rest = _flags(body)
        yield Instruction(name, first + 1, at, flags, rest, heredocs)


def _joined(pieces: list[tuple[int, str]]) -> Text:
    starts, length = [], 0
    for line, piece in pieces:
        starts.append((length, line))
        length += len(piece)
    return Text("".join(piece for _, piece in pieces), tuple(starts))


def _split(whole: Text) -> tuple[str, Text]:
    found = re.match(r"\s*(\S+)\s*", whole.text)
    assert found
    return found[1].upper(), whole.after(found.end())


def _flags(body: Text) -> tuple[dict[str, str], Text]:
    flags: dict[str, list[str]] = {}
    at = 0
    while found := _FLAG.match(body.text, at):
        flags.setdefault(found[1], []).append(found[2] or "")
        at = found.end()
    # Several --mount=… are one flag to the rules: they only look for words in it.
    return {name: " ".join(filter(None, values)) for name, values in flags.items()}, body.after(at)


class _Places:
    """Where each line stands: as it is, and without leading tabs."""

    def __init__(self, lines: list[str]) -> None:
        self.of: tuple[dict[str, list[int]], dict[str, list[int]]] = {}, {}
        for place, line in enumerate(lines):
            for found, key in zip(self.of, (line, line.lstrip("\t")), strict=True):
                found.setdefault(key, []).append(place)

    def next(self, name: str, at: int, dash: bool) -> int | None:
        places = self.of[dash].get(name, [])
        number = bisect_left(places, at)
        return places[number] if number < len(places) else None


def _heredocs(text: str, lines: list[str], at: int, places: _Places) -> tuple[tuple[Heredoc, ...], int]:
    found: list[Heredoc] = []
    for dash, quote, name in _HEREDOC.findall(text)[:_MOST_HEREDOCS]:
        end = places.next(name, at, bool(dash))
        if end is None:
            return tuple(found), at  # it does not end: not a heredoc
        body = [(place + 1, (lines[place].lstrip("\t") if dash else lines[place]) + "\n") for place in range(at, end)]
        found.append(Heredoc(_joined(body) if body else Text("", ((0, at + 1),)), bool(quote)))
        at += len(body) + 1
    return tuple(found), at
