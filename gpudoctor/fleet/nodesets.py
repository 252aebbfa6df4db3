"""Sets of nodes, in the syntax of ClusterShell: node[001-128]."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from gpudoctor.errors import UserError

MOST_NODES = 100_000
_MOST_DIGITS, _MOST_SHOWN = 100, 60
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,252}")
_WITH_PORT = re.compile(r"[^:]+:([0-9]{1,5})")


def parsed(words: Iterable[str], groups: Iterable[str] = ()) -> tuple[str, ...]:
    """The nodes of these sets and groups, each once, in the order of ClusterShell. UserError for a typo and an empty set."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError

    found = NodeSet()
    given = [*words, *(group if group.startswith("@") else f"@{group}" for group in groups)]
    for word in given:
        if _least_work(word) > MOST_NODES:
            raise UserError(f"{_short(word)} contains more than {MOST_NODES:,} nodes")
        try:
            added = NodeSet(word)
        except (NodeSetException, GroupResolverError, GroupSourceError, ValueError) as failure:
            raise UserError(f"{word!r} is not a valid set of nodes: {_why_not(word, failure)}") from None
        if not added and word.startswith("@"):
            raise UserError(f"the group {word[1:]!r} is unknown or empty (nodeset -LL lists the groups)")
        if not added:
            raise UserError(f"{word!r} contains no node")
        if len(found) + len(added) > MOST_NODES:
            raise UserError(f"{word!r} contains more than {MOST_NODES:,} nodes")
        found.update(added)
    for name in found:
        if not is_name(name):
            hint = ": separate nodes with commas" if " " in name else ""
            raise UserError(f"{name!r} is not a valid name of a node{hint}")
        if port := _WITH_PORT.fullmatch(name):
            raise UserError(f"{name!r} has a port, which is an option of ssh: --engine-options '-p {port[1]}'")
    return some(tuple(found))


def _least_work(word: str) -> int:
    """How many names ClusterShell would make of it, at least: it makes them all before it says how many there are."""
    most = 0
    for part in re.split(r"[,!&^\s]+(?![^\[]*\])", word):
        count = 1
        for inside in re.findall(r"\[([^\[\]]*)\]", part):
            count *= max(1, sum(_span(one) for one in inside.split(",")))
        most = max(most, count)
    return most


def _span(range: str) -> int:
    """`3-9/2` stands for 4 numbers."""
    found = re.fullmatch(r"\s*(\d+)-(\d+)(?:/(\d+))?\s*", range)
    if not found:
        return 1
    if max(len(found[1]), len(found[2])) > _MOST_DIGITS:
        return MOST_NODES + 1
    return max(0, int(found[2]) - int(found[1])) // max(1, int((found[3] or "1")[:_MOST_DIGITS])) + 1


def _short(word: str) -> str:
    return repr(word if len(word) <= _MOST_SHOWN else f"{word[:_MOST_SHOWN]}…")


def some(names: tuple[str, ...]) -> tuple[str, ...]:
    """The nodes; UserError if there is none."""
    if not names:
        raise UserError("no nodes given: name them with -w node[001-128] or -g GROUP")
    return names


def without(names: tuple[str, ...], left_out: Collection[str]) -> tuple[str, ...]:
    """The nodes that are not left out; UserError if there is none."""
    found = tuple(name for name in names if name not in left_out)
    if not found:
        raise UserError("-x leaves out all nodes")
    return found


def is_name(name: str) -> bool:
    """Whether it can be a node: nothing that a program could take for an option or a path."""
    return bool(_NAME.fullmatch(name))


def folded(names: Iterable[str]) -> str:
    """`node[001-004,7]`; names that ClusterShell cannot fold are listed with commas."""
    names = list(names)
    if not names:
        return ""
    try:
        from ClusterShell.NodeSet import NodeSet, NodeSetException
    except ImportError:
        return ",".join(names)
    try:
        found: Any = NodeSet.fromlist(names)
    except (NodeSetException, ValueError):
        return ",".join(names)
    return str(found)


def _why_not(word: str, failure: Exception) -> str:
    """In the words of ClusterShell, which quotes what it was given once more."""
    if word.startswith("[") and ":" in word:
        return "write an IPv6 address without brackets"
    said = next(iter(str(failure).splitlines()), type(failure).__name__)
    return re.sub(r"\s*:\s+", ": ", said.replace('"', "")).removesuffix(f": {word}")
