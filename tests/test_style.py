"""How the sources are written, where no linter asks: expressions that can be read, and no text that does nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pytest
from sources import examined, nodes, parsed, text_of

from gpudoctor import catalog, folders

LONGEST = 80  # characters of a regular expression that is not VERBOSE
MOST_LINES = 300
PACKAGE = folders.package()
VOCABULARY = PACKAGE / "model.py"
SOURCES = (*PACKAGE.rglob("*.py"), *catalog.files())
FUNCTIONS = {"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}

pytestmark = examined


def length(node: ast.expr, constants: Mapping[str, ast.expr]) -> int:
    """Characters of an expression that are written in one text, here or in a constant of the module."""
    match node:
        case ast.Constant(value=str(text)):
            return len(text)
        case ast.JoinedStr(values=parts):
            return sum(length(part, {}) for part in parts)
        case ast.BinOp(left=left, right=right):
            return length(left, constants) + length(right, constants)
        case ast.Name(id=name) if name in constants:
            return length(constants[name], {})
    return 0


def long_expressions(source: str) -> Iterator[int]:
    """The lines in which a function of re is given one."""
    module = parsed(source)
    assignments = [node for node in module.body if isinstance(node, ast.Assign)]
    constants = {target.id: node.value for node in assignments for target in node.targets if isinstance(target, ast.Name)}
    for node in nodes(source, ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=function), args=[pattern, *_]) if (
                function in FUNCTIONS
            ):
                if length(pattern, constants) > LONGEST and "VERBOSE" not in ast.unparse(node):
                    yield node.lineno


def dead_texts(source: str) -> Iterator[int]:
    """The lines of texts that are neither a docstring nor part of anything: mostly the second half of one above."""
    for node in nodes(source, ast.Expr):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) | ast.JoinedStr() | ast.BinOp(left=ast.Constant(value=str())) as text):
                if not source.splitlines()[text.lineno - 1].lstrip().startswith('"""'):
                    yield node.lineno


def test_a_long_regular_expression_is_verbose() -> None:
    assert [f"{path}:{line}" for path in SOURCES for line in long_expressions(text_of(path))] == []


def test_no_text_stands_alone() -> None:
    assert [f"{path}:{line}" for path in SOURCES for line in dead_texts(text_of(path))] == []


def test_a_file_can_be_read_at_once() -> None:
    lines = {path: len(text_of(path).splitlines()) for path in SOURCES if path != VOCABULARY}
    assert {str(path): count for path, count in lines.items() if count > MOST_LINES} == {}


@pytest.mark.parametrize(
    "source",
    [
        f're.compile(r"{"a" * 81}")',
        f're.search("{"a" * 41}" f"{{b}}{"c" * 40}", text)',
        f're.match("{"a" * 41}" + "{"a" * 40}", text)',
        f'LONG = "{"a" * 81}"\nre.match(LONG, text)',
    ],
)
def test_a_long_expression_is_found(source: str) -> None:
    assert len(list(long_expressions(source))) == 1


@pytest.mark.parametrize(
    "source", ['A = r"a"\nr"|b"', 'def f():\n    """Does."""\n    "not"', 'A = 1\nf"{A}"', 'A = 1\n"a" + "b"']
)
def test_a_text_alone_is_found(source: str) -> None:
    assert list(dead_texts(source)) == [source.count("\n") + 1]
