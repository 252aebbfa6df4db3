"""The meaning of compiler errors: which part of the toolchain is missing, incompatible or misconfigured. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from gpudoctor.knowledge import messages
from gpudoctor.model import Fix, Problem

CHECK_ID = "toolchain-ladder"


class Known(NamedTuple):
    """A recognised error: the problem with its fixes, the message, and the problem of a quick check behind it."""

    problem: Problem
    words: str
    because: str


def recognise(text: str, rung: str, **values: str) -> Known | None:
    """The meaning of a compiler's output; `values` may be used in the message."""
    message = messages.first(CHECK_ID, text)
    found = message and message.regex.search(text)
    if not message or not found:
        return None
    groups = found.groupdict()
    problem = message.means(messages.problems(CHECK_ID)[message.problem])
    problem = replace(problem, fixes=tuple(_filled(fix, groups) for fix in problem.fixes))
    because = message.because_of.get(rung, next(iter(message.causes), ""))
    return Known(problem, message.words.format_map({"nvcc": "", **groups, **values}), because)


def _filled(fix: Fix, groups: Mapping[str, str | None]) -> Fix:
    """The fix with the matched text in its title and its commands."""
    title = fix.title
    for name, text in groups.items():
        title = title.replace(f"{{{name}}}", text or "")
    return replace(fix.filled({name: text for name, text in groups.items() if text}), title=title)
