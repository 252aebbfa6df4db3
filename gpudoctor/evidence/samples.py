"""Messages in patches, reviews and instructions: they did not occur. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpudoctor.evidence.prompts import NEXT
from gpudoctor.evidence.sentences import says_of_failure

Lines = Sequence[tuple[int, str]]

_HUNK = re.compile(r"^\s?@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_OF_HUNK = re.compile(r"^[-+ \t\\@]|^diff --git |^index [0-9a-f]{6,}")
_REVIEW = re.compile(
    r"\b(?: nit | lgtm | approved | merge\ request | pull\ request | [MP]R | review(?:ed|er)? )\b", re.IGNORECASE | re.VERBOSE
)
_REMARK = re.compile(r"^@?[a-z][\w.-]{1,20}: (?!(?:error|fatal|warning|failed|cannot)\b)[a-z].*[\"`“]")

_CONDITION = re.compile(
    r"""
    \b[Ii]f\ (?:[\w.-]+\ (?:is|works?|looks?|runs?)\ (?:\w+\ ){1,2}(?:but|and)\ )?
      (?:it|you|users?|people|somebody|someone|they|[\w.-]+|an?\ \w+|the\ \w+(?:\ \w+)?)
      \ (?:prints?|shows?|says?|reports?|gets?|sees?|returns?|reads?)\b [^.`"'“\n]{0,40}$
    | \byou\ (?:will|would|should|may|might|can)\ (?:then\ )?(?:find|see|get)\b [^.`"'“\n]{0,40}:$
    """,
    re.VERBOSE,
)
_QUOTES = re.compile(
    r"""
    \b[Ii]f\ (?:it|you|they|nvidia-smi|dmesg|the\ \w+(?:\ \w+)?)\ (?:prints?|shows?|says?|reports?|gets?|sees?|returns?|reads?)
    \ (?:an?\ |the\ |only\ )?["`“].*["`”]
    """,
    re.VERBOSE,
)
_SAMPLE = re.compile(
    r"""
    \b[Yy]ou\ (?:then\ )?(?:get|see)\b [^.`"'“\n]{0,40}$
    | \blooks?\ (?:then\ )?like\b [^.`"'“\n]{0,30}$
    | \bsuch\ as:?$
    | \b[Ee]xamples?\b [^.`"'“\n]{0,60}:$
    """,
    re.VERBOSE,
)
_INSTRUCTS = re.compile(
    r"""
    \b(?: run\ ?books? | on[ -]call | quick\ reference | how[ -]to | handbook | cheat\ ?sheet | (?:last\ )?reviewed:?\ \d{4}
    | if\ (?:an?\ )?(?:users?|people|customers?)\ (?:reports?|gets?|sees?) )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
MOST_BLANK = 2  # lines between a sentence and its sample


def of_patches(lines: Lines) -> Iterator[int]:
    """Lines of a patch, and remarks of its reviewers that quote a message."""
    inside = is_patch = False
    for number, line in lines:
        inside = bool(_HUNK.match(line) or (inside and _OF_HUNK.match(line)))
        is_patch = is_patch or inside
        if inside:
            yield number
    if is_patch and any(_REVIEW.search(line) for _, line in lines):
        yield from (number for number, line in lines if _REMARK.match(line))


def of_instructions(lines: Lines) -> Iterator[int]:
    """The indented blocks after sentences such as "If it prints": what a reader of the instructions may see."""
    spans = [(place, bool(_CONDITION.search(line.rstrip()))) for place, (_, line) in enumerate(lines) if _leads(lines, place)]
    instructs = any(_INSTRUCTS.search(line) or _QUOTES.search(line) for _, line in lines)
    is_sure = instructs or any(condition for _, condition in spans)
    if not spans or not is_sure:
        return
    blocks = [number for place, _ in spans for number in _block(lines, place)]
    own = set(blocks)
    if not says_of_failure(line for number, line in lines if number not in own):
        yield from blocks


def _leads(lines: Lines, place: int) -> bool:
    line = lines[place][1].rstrip()
    return bool((_CONDITION.search(line) or _SAMPLE.search(line)) and not NEXT.match(line))


def _block(lines: Lines, place: int) -> Iterator[int]:
    """The lines below one that are indented more than it."""
    last, lead = lines[place]
    least = len(lead) - len(lead.lstrip()) + 2
    for number, line in lines[place + 1 :]:
        if len(line) - len(line.lstrip()) < least or number > last + MOST_BLANK + 1:
            return
        yield number
        last = number
