"""Rules remember texts in which none of their patterns matches: machines have most texts in common, and reports of one do."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

MOST_CHARACTERS = 1_000_000  # of the texts that one rule remembers


class Rule:
    """Replaces what its patterns match. matched: how often one did, or was not asked; what it stands for may depend on others."""

    matched = 0

    def _sub(self, pattern: re.Pattern[str], instead: Callable[[re.Match[str]], str], text: str) -> str:
        text, times = pattern.subn(instead, text)
        self.matched += times
        return text


OfRule = TypeVar("OfRule", bound=Rule)


def remembering(replaced: Callable[[OfRule, str], str]) -> Callable[[OfRule, str], str]:
    """A method that returns a text as it is, without looking again, if no pattern of the class matched in it before."""
    unmatched: set[str] = set()
    characters = 0

    @wraps(replaced)
    def method(self: OfRule, text: str) -> str:
        nonlocal characters
        if text in unmatched:
            return text
        before = self.matched
        done = replaced(self, text)
        if self.matched == before:
            characters += len(text)
            if characters > MOST_CHARACTERS:
                unmatched.clear()
                characters = len(text)
            unmatched.add(text)
        return done

    return method
