"""Python sources as trees: the tests that examine them share a worker, which parses and walks each file once."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

Node = TypeVar("Node", bound=ast.AST)

examined = pytest.mark.xdist_group("sources")


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def nodes(source: str, kind: type[Node]) -> list[Node]:
    """All nodes of a kind, wherever they stand, in the order of ast.walk."""
    found: list[Node] = _by_kind(source)[kind]  # type: ignore[assignment]
    return found


@cache
def _by_kind(source: str) -> defaultdict[type[ast.AST], list[ast.AST]]:
    found: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
    for node in ast.walk(parsed(source)):
        found[type(node)].append(node)
    return found
