"""The literal strings of a regular expression: every text that matches contains one of them.

The method is described in https://swtch.com/~rsc/regexp/regexp4.html; Python's own parser gives the tree.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as code  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_constants as code
    import sre_parse as parser

MOST_BRANCHES = 24
Set = tuple[str, ...]


def literals(pattern: str) -> Set:
    """The set whose shortest member is the longest; empty if the pattern has no literal part."""
    tree = parser.parse(pattern)
    return () if tree.state.flags & code.SRE_FLAG_IGNORECASE else _best(_sets(tree))


def _best(sets: Iterable[Set]) -> Set:
    return max((found for found in sets if all(found)), key=lambda found: min(map(len, found), default=0), default=())


def _sets(tree: Any) -> list[Set]:
    """Every set of strings of which one must occur: runs of literals, and what groups, repeats and branches require."""
    found: list[Set] = []
    run = ""
    for operation, argument in tree:
        if operation is code.LITERAL:
            run += chr(argument)
            continue
        if run:
            found.append((run,))
            run = ""
        found += _of_group(operation, argument)
    return [*found, *([(run,)] if run else [])]


def _of_group(operation: Any, argument: Any) -> list[Set]:
    if operation is code.SUBPATTERN:
        return [] if argument[1] & code.SRE_FLAG_IGNORECASE else _sets(argument[-1])
    if operation in (code.MAX_REPEAT, code.MIN_REPEAT) and argument[0] > 0:
        return _sets(argument[-1])
    if operation is code.BRANCH:
        return _of_branches(argument[1])
    return []


def _of_branches(branches: Sequence[Any]) -> list[Set]:
    bests = [_best(_sets(branch)) for branch in branches]
    if len(bests) > MOST_BRANCHES or not all(bests):
        return []
    return [tuple(dict.fromkeys(member for best in bests for member in best))]
