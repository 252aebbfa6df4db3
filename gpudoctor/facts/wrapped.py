"""Lines that a terminal or a mail broke, joined again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

Line = tuple[int, str]
LEAST_WIDTH, MOST_LINES = 30, 4000
NEARLY_FULL = 0.8  # of the width: whoever breaks a line by hand does it earlier than a program
_TABLE = re.compile(r"^\s*[|+]|^\s*[-=*#~]{4,}")
_BEGINS = re.compile(
    r"""
    ^\s*(?: [-*•]\s | \d+[.)]\s | >>> | \[?\d{4}-\d\d-\d\d | \[\s*\d+\.\d+\] | (?:INFO|WARN\w*|ERROR|DEBUG|E|W|I)[\s:]
    | Traceback | File\ " | [$\#]\s | [\w.+-]+@[\w.-]+[:~] )
    """,
    re.VERBOSE,
)
_GOES_ON = re.compile(r"^[a-z0-9(\"'`]")


def joined(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The passages of a text with broken lines, of which each is one line again.

    >>> joined(((1, "NVIDIA-SMI has failed because it couldn't"), (2, "communicate with the NVIDIA driver.")))
    ((1, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),)
    """
    if len(lines) > MOST_LINES:
        return ()
    changed = ((block, tuple(_of_block(block))) for block in _blocks(lines))
    return tuple(line for block, whole in changed if len(whole) < len(block) for line in whole)


def _blocks(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Passages without empty lines and tables."""
    numbered = enumerate(lines)
    for _, block in groupby(numbered, key=lambda each: (each[1][0] - each[0], bool(_TABLE.match(each[1][1])))):
        yield [line for _, line in block]


def _of_block(block: list[Line]) -> Iterator[Line]:
    widths = [len(text.rstrip()) for _, text in block]
    width = max(widths)
    is_cut = widths.count(width) > 1  # in the middle of words
    number, whole = block[0]
    for (_, text), (following, more) in pairwise(block):
        glue = _glue(text.rstrip(), more, width, is_cut)
        if glue is None:
            yield number, whole
            number, whole = following, more
        else:
            whole = f"{whole.rstrip()}{glue}{more.lstrip() if glue else more}"
    yield number, whole


def _glue(text: str, more: str, width: int, is_cut: bool) -> str | None:
    """What was between two lines before the break; None if they are two."""
    if len(text) < LEAST_WIDTH or _BEGINS.match(more) or _TABLE.match(more):
        return None
    if is_cut and len(text) == width:
        return ""
    first = (more.split() or [""])[0]
    if is_cut and len(text) == width - 1:
        return " "
    return " " if _GOES_ON.match(more) and len(text) + 1 + len(first) > NEARLY_FULL * width else None
