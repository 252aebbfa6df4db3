"""How much a file may grow while it is read: variables, aliases and `extends` let a few bytes stand for gigabytes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

MOST = 32 << 20  # characters; a file written by hand needs a thousandth
ENTRY = 64  # characters that an entry of a list or a mapping counts as
MOST_NESTED = 20  # levels of ${A:-${B:-…}} and $( $( … ) )
_spent: ContextVar[list[int] | None] = ContextVar("spent", default=None)
Thing = TypeVar("Thing")
Made = TypeVar("Made")


class TooMuch(Exception):
    """The file stands for more than any real one."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    before = _spent.set([0])
    try:
        yield
    finally:
        _spent.reset(before)


def spend(characters: int) -> None:
    spent = _spent.get()
    if spent is not None:
        spent[0] += characters
        if spent[0] > MOST:
            raise TooMuch(f"its variables, aliases or extends stand for more than {MOST >> 20} MB")


def once(make: Callable[[Thing], Made]) -> Callable[[Thing], Made]:
    """`make`, computed once for each thing and kept in it."""

    @functools.wraps(make)
    def kept(thing: Thing) -> Made:
        memory = vars(thing).setdefault("_once", {})
        if make not in memory:
            memory[make] = make(thing)
        found: Made = memory[make]
        return found

    return kept
