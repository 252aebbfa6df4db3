"""Messages that were written into a log for a test, and lists of messages with what they mean. None of them occurred. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from gpudoctor.evidence.prompts import NEXT
from gpudoctor.evidence.sentences import says_of_failure

Lines = Sequence[tuple[int, str]]

_WRITES = re.compile(
    r"""
    (?: \b(?:echo|printf)\b[^"'\n]{0,20} | (?P<logs>\blogger\b)[^"'\n]{0,40} )
    (?: "(?P<double>[^"\n]{8,400})" | '(?P<single>[^'\n]{8,400})' )
    (?(logs) | [^"'\n]{0,20}[>|][^"'\n]{0,40}(?:/dev/kmsg|/var/log/|\.log\b) )
    """,
    re.VERBOSE,
)
MOST_WRITTEN = 50  # messages
LEAST_ANSWERS = 2
_MEANING = re.compile(
    r"^(?:\s{2,}|\t)[A-Z][^:=|]{30,}\.\s*$ | ^\s*(?:Cause|Reason|Meaning|Solution|Fix|Resolution|Remedy|Answer|A):\ \S",
    re.VERBOSE,
)
_OF_OUTPUT = re.compile(r"^\s*File\ |:\d+\b|=|\bat\ 0x|\d\d:\d\d", re.VERBOSE)


def written(lines: Lines) -> Iterator[int]:
    """The commands that write a message into a log, and the lines that then repeat it.

    >>> list(written(((1, 'echo "NVRM: Xid (PCI:0000:17:00): 79" > /dev/kmsg'), (2, "kernel: NVRM: Xid (PCI:0000:17:00): 79"))))
    [1, 2]
    """
    said = {match["double"] or match["single"] for _, line in lines for match in _WRITES.finditer(line)}
    messages = sorted(said)[:MOST_WRITTEN]
    yield from (number for number, line in lines if any(message in line for message in messages))


def explained(lines: Lines) -> Iterator[int]:
    """Messages of a list in which each is followed by its meaning, in a text whose author reports no failure."""
    pairs: list[int] = []
    meanings: list[int] = []
    for (number, line), (next_number, below) in pairwise(lines):
        is_message = line[:1].strip() and not NEXT.match(line) and not _MEANING.match(line)
        is_labelled = below[:1].strip() or not _OF_OUTPUT.search(below)
        if is_message and _MEANING.match(below) and is_labelled:
            pairs.append(number)
            meanings.append(next_number)
    own = (line for number, line in lines if number not in {*pairs, *meanings})
    if len(pairs) >= LEAST_ANSWERS and not says_of_failure(own):
        yield from pairs
