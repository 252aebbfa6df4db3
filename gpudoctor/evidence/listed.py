"""Lines that list possible messages: tables of errors in source code and in documentation. None of them occurred."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_CODE = re.compile(
    r"""
    ^\s*(?:
        case\ [\w:]+:\s*(?:return\b|\w+\s*=)?\s*"[^"]*"\s*;
        | default:\s*return\s+"[^"]*"\s*;
        | return\s+"[^"]*"\s*;
        | \{\s*(?:\d+|[A-Z][A-Z0-9_]{4,})\s*,\s*"[^"]*"\s*\},?
        | \[?(?:\d+|[A-Z][A-Z0-9_]{4,})\]?\s*[:=]\s*"[^"]*"\s*,
    )
    \s*(?:break;)?\s*(?://.*|\#.*|/\*.*)?$
    """,
    re.VERBOSE,
)
_MACRO = re.compile(r"^\s*#\s*define\s+[A-Za-z_]\w*\b(?:\(|\s|$)")
_RULE = re.compile(r"^\s*\|?(?:\s*:?-{2,}:?\s*\|)+(?:\s*:?-{2,}:?)?\s*$")
_COLUMN = re.compile(
    r"""
    \b(?: xid | codes? | errors? | messages? | text | meaning | actions? | (?:likely\ |possible\ )?causes? | fix(?:es)?
    | descriptions? | severity | remedy | what\ to\ do | solutions? | symptoms? )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OCCURRED = re.compile(
    r"\b(?: time(?:stamp)? | date | when | node | host | count | gpu | seen | actual | result | tried )\b",
    re.IGNORECASE | re.VERBOSE,
)
_EXAMPLE = re.compile(
    r"""
    ^\s* (?:[-*]\s)? (?:for\ )? example (?:\ (?:line|message|output|entry|log\ line))? s? :
    \s* `[^`]+` [\s.]*$
    """,
    re.IGNORECASE | re.VERBOSE,
)
LEAST_COLUMNS = 2


def only_listed(lines: Mapping[int, str]) -> set[int]:
    """The numbers of these lines."""
    found = {number for number, line in lines.items() if _CODE.match(line) or _EXAMPLE.match(line)}
    return found | set(_macros(lines)) | set(_tables(lines))


def _macros(lines: Mapping[int, str]) -> Iterator[int]:
    """With the lines that continue them."""
    goes_on = -1
    for number, line in sorted(lines.items()):
        if number == goes_on or _MACRO.match(line):
            yield number
            goes_on = number + 1 if line.rstrip().endswith("\\") else -1


def _tables(lines: Mapping[int, str]) -> Iterator[int]:
    """Rows of a table in Markdown whose columns explain messages, and do not say when or where these occurred."""
    for number, line in lines.items():
        head = lines.get(number - 1, "")
        if not (_RULE.match(line) and "|" in head) or _OCCURRED.search(head):
            continue
        if sum(bool(_COLUMN.search(cell)) for cell in head.split("|")) < LEAST_COLUMNS:
            continue
        row = number + 1
        while "|" in lines.get(row, ""):
            yield row
            row += 1
