"""No regular expression of the package takes long for a text that is made of its own parts: hostile input is read in linear time.

A line of a text and of a snapshot is cut to some thousand characters, so that a pattern may take a time that is quadratic in a
line's length. What grows faster is found here, with 600 characters, by time: four times what the slowest pattern needs.
GPUDOCTOR_FUZZ (`make fuzz`) tries more texts for each pattern, and longer ones.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import random
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import FrameType, ModuleType
from typing import Any

import pytest
from sources import examined, text_of

import checks
import gpudoctor
from gpudoctor import folders
from gpudoctor.knowledge import literals, messages, symptoms

code: Any = vars(literals)["code"]  # of Python's own parser of expressions, under the name that this version has
parser: Any = vars(literals)["parser"]
TIMES = int(os.environ.get("GPUDOCTOR_FUZZ", "1"))
CHARACTERS, MOST_SECONDS = (600, 0.05) if TIMES == 1 else (1200, 0.2)
MOST_TRIED = 4 * TIMES
LARGE = 100  # repeats
REPEATS = {getattr(code, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") if hasattr(code, name)}
LOOKS = (code.ASSERT, code.ASSERT_NOT)
ATOMIC = getattr(code, "ATOMIC_GROUP", None)
TYPICAL = "aAz09 ./:-_,=\n\"'(é"
AT_START = {"match", "fullmatch"}

Pattern = re.Pattern[str]
Tree = Sequence[tuple[Any, Any]]


def pumped(pattern: Pattern) -> Iterator[tuple[str, str]]:
    """What to begin with and what to repeat, so that one of the pattern's repeats has much to do."""
    by = random.Random(pattern.pattern)
    found: dict[tuple[str, str], None] = {}
    tree = parser.parse(pattern.pattern, pattern.flags)
    for before, body in repeats(tree, "", by):
        for piece in pieces(body, by):
            found |= dict.fromkeys(((before, piece), ("", before + piece)))
    found[("", example(tree, by))] = None
    chosen = [pump for pump in found if pump[1]]
    return iter(by.sample(chosen, min(len(chosen), MOST_TRIED)))


def repeats(tree: Tree, before: str, by: random.Random) -> Iterator[tuple[str, Tree]]:
    for operation, argument in tree:
        if operation in REPEATS:
            if argument[1] >= LARGE:
                yield before, argument[2]
            yield from repeats(argument[2], before, by)
        for part in parts(operation, argument):
            yield from repeats(part, before, by)
        before += example([(operation, argument)], by)


def parts(operation: Any, argument: Any) -> Iterable[Tree]:
    if operation is code.BRANCH:
        return argument[1]  # type: ignore[no-any-return]
    if operation is code.SUBPATTERN:
        return [argument[-1]]
    if operation in LOOKS:
        return [argument[1]]
    return [argument] if operation is ATOMIC else []


def pieces(body: Tree, by: random.Random) -> set[str]:
    alone: tuple[Any, Any] = body[0] if len(body) == 1 else (None, None)
    return {*(letters(alone[1])[:3] if alone[0] is code.IN else ""), example(body, by)}


def example(tree: Tree, by: random.Random) -> str:
    """A short text that the tree matches, but for its conditions."""
    found = ""
    for operation, argument in tree:
        if operation is code.LITERAL:
            found += chr(argument)
        elif operation in (code.NOT_LITERAL, code.ANY):
            found += "b" if argument == ord("a") else "a"
        elif operation is code.IN:
            found += by.choice(letters(argument))
        elif operation in REPEATS:
            found += example(argument[2], by) * min(argument[0], 50)
        elif operation is code.BRANCH:
            found += example(by.choice(argument[1]), by)
        elif operation not in LOOKS:
            found += "".join(example(part, by) for part in parts(operation, argument))
    return found


def letters(members: Sequence[tuple[Any, Any]]) -> str:
    if members[0][0] is code.NEGATE:
        of_class = members_of(members[1:])
        return "".join(letter for letter in TYPICAL if not of_class(letter)) or "\x01"
    of_class = members_of(members)
    named = "".join(chr(argument) for operation, argument in members if operation is code.LITERAL)
    return (
        (named[:1] + "".join(filter(of_class, TYPICAL)))
        or named
        or "".join(chr(argument[0]) for operation, argument in members if operation is code.RANGE)
    )


def members_of(members: Sequence[tuple[Any, Any]]) -> Any:
    """Whether a letter is one of them."""
    tests: dict[Any, Callable[[str], bool]] = {
        code.CATEGORY_DIGIT: str.isdecimal,
        code.CATEGORY_NOT_DIGIT: lambda letter: not letter.isdecimal(),
        code.CATEGORY_SPACE: str.isspace,
        code.CATEGORY_NOT_SPACE: lambda letter: not letter.isspace(),
        code.CATEGORY_WORD: lambda letter: letter.isalnum() or letter == "_",
        code.CATEGORY_NOT_WORD: lambda letter: not (letter.isalnum() or letter == "_"),
    }

    def is_one(letter: str) -> bool:
        return any(
            ord(letter) == argument
            if operation is code.LITERAL
            else argument[0] <= ord(letter) <= argument[1]
            if operation is code.RANGE
            else tests[argument](letter)
            for operation, argument in members
        )

    return is_one


@cache
def patterns() -> Mapping[Pattern, str]:
    """All that the package and its checks keep, and how it is used: at the start of a text only, or anywhere."""
    found: dict[Pattern, str] = {}
    for package in (gpudoctor, checks):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if info.name.endswith("__main__"):
                continue
            module = importlib.import_module(info.name)
            for name, value in vars(module).items():
                for pattern in compiled(value):
                    found.setdefault(pattern, used(name, module))
    of_messages = (message.regex for table in messages.tables().values() for message in table.messages)
    table = symptoms.table()
    at_once, pairs = zip(*map(symptoms.ways, (*table.said, *table.shown)), strict=True)
    of_symptoms = (*filter(None, at_once), *(pattern for each in pairs for pair in each for pattern in pair))
    return found | dict.fromkeys((*of_messages, *of_symptoms), "search")


def compiled(value: Any, levels: int = 4) -> Iterator[Pattern]:
    if isinstance(value, re.Pattern):
        yield from [value] if isinstance(value.pattern, str) else []
    elif levels and isinstance(value, (dict, list, tuple, set, frozenset)):
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from compiled(part, levels - 1)
    elif levels and is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from compiled(getattr(value, field.name, None), levels - 1)


def used(name: str, module: ModuleType) -> str:
    source = text_of(folders.package().parent / str(module.__file__))
    uses = re.findall(rf"\b{name}\b(?:\.(\w+))?", source.partition(f"\n{name} = ")[2])
    if not name.startswith("_") or not set(uses) <= AT_START:
        return "search"
    return "match" if "match" in uses else "fullmatch"


def seconds(pattern: Pattern, use: str, text: str) -> float:
    """CPU time, at most a second."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    begun = time.thread_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 1)
        for _ in pattern.finditer(text) if use == "search" else [getattr(pattern, use)(text)]:
            pass
    except TimeoutError:
        return 1.0
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return time.thread_time() - begun


@examined
@pytest.mark.slow
def test_no_pattern_takes_long() -> None:
    slow = []
    for pattern, use in patterns().items():
        for before, piece in pumped(pattern):
            text = before + piece * (CHARACTERS // len(piece)) + "\x00"
            if all(seconds(pattern, use, text) > MOST_SECONDS for _ in range(2)):
                slow.append(f"{before!r} and then {piece!r} again and again: {pattern.pattern}")
                break
    assert not slow, "\n".join(slow)


def test_a_slow_pattern_is_found() -> None:
    slow = re.compile(r"^(?:\w+\s?)*$", re.MULTILINE)
    assert any(seconds(slow, "search", before + piece * 100 + "\x00") > MOST_SECONDS for before, piece in pumped(slow))
