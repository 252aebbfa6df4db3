"""Runs of pytest without failures: their logs quote the errors that the tests provoke."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_BEGINS = re.compile(
    r"""
    ^=+\ test\ session\ starts\ =+
    | (?: ^ | [$#>!]\ ? | python3?\ -m[ ] | uv\ run[ ] )pytest(?:\ |$)
    | ^[.sxXFE]+\ +\[\ *\d+%\]$
    | ^=+\ PASSES\ =+$
    """,
    re.VERBOSE,
)
_SECTION = re.compile(r"^={3,} .+ ={3,}$")
_WARNINGS = re.compile(r"^=+ warnings summary ")
_SUMMARY = re.compile(r"^(?:=+ )?(?P<counts>(?:\d+ [a-z]+,? )+)in [\d.]+s\b|^=+ no tests ran ")
_BAD = re.compile(r"\b(?:failed|errors?)\b")
_SKIPPED = re.compile(r"^SKIPPED \[\d+\] .*\b(?:cuda|gpus?|nvidia)\b", re.IGNORECASE)
_FAILED = re.compile(r"^(?:FAILED|ERROR) \S.*")
_OF_GPU = re.compile(r"cuda|gpu|nvidia|nccl|device", re.IGNORECASE)


def spans(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int]]:
    """The first and last line of each run, without its warnings, which describe the machine and not the tests."""
    first: int | None = None
    parts: list[tuple[int, int]] = []
    lines = tuple(lines)
    if _lacks_gpu(lines):
        yield lines[0][0], lines[-1][0]
        return
    for number, line in lines:
        if summary := _SUMMARY.match(line):
            counts = summary["counts"] or ""
            parts += [(first, number)] if first is not None else []
            if "passed" in counts and not _BAD.search(counts):
                yield from parts
            first, parts = None, []
        elif first is not None and _WARNINGS.match(line):
            parts.append((first, number))
            first = None
        elif first is None and (_BEGINS.search(line) or (parts and _SECTION.match(line))):
            first = number


def _lacks_gpu(lines: Sequence[tuple[int, str]]) -> bool:
    """Whether tests were skipped because the machine has no GPU, and those that failed are about something else."""
    if not any(_SKIPPED.match(line) for _, line in lines):
        return False
    return not any(_OF_GPU.search(line) for _, line in lines if _FAILED.match(line))
