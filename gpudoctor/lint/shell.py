"""The commands of a RUN instruction, as a shell would split them: words with their lines, known variables expanded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from gpudoctor.lint.budget import MOST_NESTED
from gpudoctor.lint.instructions import Text
from gpudoctor.lint.variables import Layer, Values, closing, joined, variable

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PREFIXES = frozenset(
    ("sudo", "exec", "time", "nice", "env", "command", "!", "{", "then", "else", "do", "if", "elif", "while", "-E")
)
_OPENING, _CLOSING = ("if", "case", "for", "while", "until", "select"), ("fi", "esac", "done")
_SHELLS = ("sh", "bash", "dash", "zsh", "ash")


@dataclass(frozen=True)
class Word:
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """One simple command. sometimes: it runs only under a condition. forgiven: its failure is ignored.

    settings: the variables set for this command only. writes: (">" or ">>", file).
    """

    words: tuple[Word, ...]
    settings: dict[str, str]
    writes: tuple[tuple[str, str], ...] = ()
    sometimes: bool = False
    forgiven: bool = False

    @property
    def program(self) -> str:
        return self.words[0].text.rsplit("/", 1)[-1] if self.words else ""

    @property
    def line(self) -> int:
        return self.words[0].line

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)


def commands(script: Text, values: Values, nested: int = 0) -> Iterator[Command]:
    """All commands of a script, those in `$(…)` and `sh -c '…'` too."""
    if nested > MOST_NESTED:
        return
    known, depth = Layer(values), 0
    strict = re.search(r"\bset +-[a-z]*e|^#!.* -[a-z]*e", script.text) is not None
    simples: list[_Simple] = []
    found: list[tuple[int, Command]] = []
    for simple in _simple(_Lexer(script, known)):
        depth += _nesting(simple.tokens)
        command = _command(simple, depth > 0)
        for name, value in command.settings.items() if not command.words else _exported(command):
            if command.sometimes or "$" in value or "`" in value:
                known.own[name] = None
            else:
                known.own[name] = value
        if simple.tokens[0].text == "for" and len(simple.tokens) > 1:
            known.own[simple.tokens[1].text] = None
        found += [(len(simples), inner) for inner in _inner(command, simple.tokens, known, nested + 1)]
        simples.append(simple)
    forgiven = _forgiven(simples, strict)
    for place, command in found:
        yield replace(command, forgiven=command.forgiven or forgiven[place])


def _forgiven(simples: list[_Simple], strict: bool) -> list[bool]:
    """For each command, whether the script continues after it failed: `a && b || true`, `a; b`, `! a`; strict: `set -e`."""
    found: list[bool] = []
    sign, where = "", 0  # the next that decides, and the command before it
    for place in range(len(simples) - 1, -1, -1):
        own = next((one for one in simples[place].after if one in ("||", "|", "&", ";", "\n")), "")
        if own:
            sign, where = own, place
        goes_on = sign in (";", "\n") and where + 1 < len(simples) and (not strict or where > place)
        found.append(simples[place].tokens[0].text == "!" or sign in ("||", "|", "&") or goes_on)
    return found[::-1]


def _nesting(tokens: list[Word]) -> int:
    """How many blocks a command opens, minus those that it closes; the keywords come before it."""
    depth = 0
    for token in tokens:
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if token.text not in (*_PREFIXES, *_OPENING, *_CLOSING):
            break
    return depth


def _exported(command: Command) -> list[tuple[str, str]]:
    if command.program not in ("export", "declare", "local", "readonly"):
        return []
    return [(found[1], found[2]) for found in map(_ASSIGNMENT.match, command.texts[1:]) if found]


def _inner(command: Command, tokens: list[Word], known: Values, nested: int) -> Iterator[Command]:
    for word in tokens:
        for inside in _substituted(word.text):
            for inner in commands(Text(inside, ((0, word.line),)), known, nested):  # `V=$(a)` fails with a, `echo $(a)` does not
                forgiven = inner.forgiven or bool(command.words)
                yield replace(inner, sometimes=inner.sometimes or command.sometimes, forgiven=forgiven)
    if not command.words:
        return
    texts = command.texts
    if command.program in _SHELLS and len(texts) > 2 and re.fullmatch(r"-[a-z]*c", texts[-2]):
        for inner in commands(Text(texts[-1], ((0, command.words[-1].line),)), known, nested):
            yield replace(inner, sometimes=inner.sometimes or command.sometimes)
    else:
        yield command


def _substituted(text: str) -> Iterator[str]:
    """The content of each outermost `$(…)`."""
    at = 0
    while found := re.compile(r"\$\((?!\()").search(text, at):
        at = closing(text, found.end() - 1, "(", ")")
        yield text[found.end() : at - 1]


def _command(simple: _Simple, nested: bool) -> Command:
    settings: dict[str, str] = {}
    writes: list[tuple[str, str]] = []
    words: list[Word] = []
    rest = iter(simple.tokens)
    for word in rest:
        assignment = _ASSIGNMENT.fullmatch(word.text)
        if word.text in (">", ">>", "<"):
            target = next(rest, None)
            writes += [(word.text, target.text)] if target and word.text != "<" else []
        elif not words and assignment:
            settings[assignment[1]] = assignment[2]
        elif words or word.text not in _PREFIXES:
            words.append(word)
    if words and words[0].text in (*_OPENING, *_CLOSING):
        words = []
    return Command(tuple(words), settings, tuple(writes), nested or simple.depends)


@dataclass(frozen=True)
class _Simple:
    """The words between two separators. after: those that follow. depends: on the result of the previous one, or on a call."""

    tokens: list[Word]
    after: list[str]
    depends: bool


def _simple(lexer: _Lexer) -> Iterator[_Simple]:
    words: list[Word] = []
    after: list[str] = []
    depends, braces = False, 0  # braces: depth in a function definition
    for token in chain(lexer.tokens(), ("",)):  # one by one: a word sees the variables set before it
        if isinstance(token, Word):
            words.append(token)
            continue
        if words:
            if braces or after == ["(", ")"]:
                braces += (words[0].text == "{") - (words[0].text == "}")
            after = [token]
            yield _Simple(words, after, depends or braces > 0)
            asks = words[0].text in ("[", "[[", "test")
            depends = token == "||" or (token == "&&" and (asks or depends))
        elif token != "\n" or after[-1:] == [")"]:
            after.append(token)
        words = []


class _Lexer:
    """Characters to words and separators; a separator is returned as a plain string."""

    def __init__(self, script: Text, known: Values) -> None:
        self.script, self.text, self.known = script, script.text, known
        self.at = 0

    def tokens(self) -> Iterator[Word | str]:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t" or self.text.startswith("\\\n", self.at):
                self.at += 2 if char == "\\" else 1
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char in "\n;&|()":
                yield self.separator()
            elif char in "<>":
                yield Word(self.redirection(), self.script.line(self.at - 1))
            else:
                yield self.word()

    def separator(self) -> str:
        size = 2 if self.text[self.at : self.at + 2] in ("&&", "||") else 1
        self.at += size
        return self.text[self.at - size : self.at]

    def redirection(self) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] in "<>&|-":
            self.at += 1
        sign = self.text[start : self.at]
        return ">>" if ">>" in sign else sign[0]

    def word(self) -> Word:
        out: list[str] = []
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;&|()<>":
            self.piece(out)
        if self.text[self.at : self.at + 1] in ("<", ">") and "".join(out).isdecimal():
            return Word(self.redirection(), self.script.line(start))
        return Word(joined(out), self.script.line(start))

    def piece(self, out: list[str]) -> None:
        char = self.text[self.at]
        if char == "\\":
            out.append(self.text[self.at + 1 : self.at + 2].replace("\n", ""))
            self.at += 2
        elif char == "'":
            end = self.text.find("'", self.at + 1)
            end = len(self.text) if end < 0 else end
            out.append(self.text[self.at + 1 : end])
            self.at = end + 1
        elif char == '"':
            self.at += 1
            self.double_quoted(out)
        elif char == "$":
            filled, self.at = variable(self.text, self.at, self.known)
            out.append(filled)
        elif char == "`":
            end = self.text.find("`", self.at + 1)
            end = len(self.text) if end < 0 else end
            out.append(f"$({self.text[self.at + 1 : end]})")
            self.at = end + 1
        else:
            out.append(char)
            self.at += 1

    def double_quoted(self, out: list[str]) -> None:
        while self.at < len(self.text) and self.text[self.at] != '"':
            if re.compile(r'\\["\\$`\n]').match(self.text, self.at):
                out.append(self.text[self.at + 1].replace("\n", ""))
                self.at += 2
            elif self.text[self.at] in "$`":
                self.piece(out)
            else:
                out.append(self.text[self.at])
                self.at += 1
        self.at += 1
