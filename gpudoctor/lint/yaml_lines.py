"""YAML (and JSON with comments) as values with their lines; anchors, merge keys and `${VAR:-default}` are resolved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

import yaml

from gpudoctor.lint.budget import ENTRY, spend
from gpudoctor.lint.variables import expand

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 100  # levels
_STRING = "tag:yaml.org,2002:str"
_JSON = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)|\t', re.DOTALL)


class NoYaml(Exception):
    """The text is not YAML: the line and why."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


Value = Union[str, dict[str, "Node"], list["Node"], None]  # noqa: UP007 (Node is defined below)


@dataclass(frozen=True)
class Node:
    """A value and the line of its key. A missing value is an empty node, so that paths need no guards."""

    value: Value = None
    line: int = 0
    is_string: bool = True  # a scalar that YAML reads as text, not as a number or a boolean

    def __bool__(self) -> bool:
        return self.value is not None

    def at(self, *path: str) -> Node:
        node = self
        for key in path:
            node = node.value.get(key, NOTHING) if isinstance(node.value, dict) else NOTHING
        return node

    @property
    def text(self) -> str:
        return self.value if isinstance(self.value, str) else ""

    @property
    def true(self) -> bool:
        return self.text.lower() in ("true", "yes", "on")

    @property
    def mapping(self) -> dict[str, Node]:
        return self.value if isinstance(self.value, dict) else {}

    @property
    def list(self) -> list[Node]:
        return self.value if isinstance(self.value, list) else []

    @property
    def lists(self) -> bool:
        return isinstance(self.value, list)

    def __iter__(self) -> Iterator[Node]:
        spend(ENTRY * len(self.list))
        return iter(self.list)


NOTHING = Node()


def parse(text: str) -> Node:
    try:
        _must_be_shallow(text)
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        last = len(text.splitlines())
        raise NoYaml(min(mark.line + 1, last) if mark else 0, error.problem or error.context or "not YAML") from None
    except yaml.YAMLError as error:
        raise NoYaml(0, str(error).splitlines()[0]) from None
    return _Reader().node(root, root.start_mark.line + 1) if root else NOTHING


def _must_be_shallow(text: str) -> None:
    """The loader in C composes by recursion, without a limit."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            mark = event.start_mark
            raise NoYaml(mark.line + 1 if mark else 0, f"nested more than {_DEEPEST} levels deep")


def parse_json(text: str) -> Node:
    """JSON with comments is YAML once the comments are blanked out; line numbers do not change."""
    return parse(_JSON.sub(lambda found: found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0]), text))


class _Reader:
    """One pass over the tree; the target of an anchor is read once, however often it is used."""

    def __init__(self) -> None:
        self.read: dict[int, Node] = {}

    def node(self, raw: yaml.Node, line: int) -> Node:
        known = self.read.get(id(raw))
        if known is None:
            self.read[id(raw)] = NOTHING  # an anchor that refers to itself
            known = self.read[id(raw)] = self.fresh(raw)
        return Node(known.value, line, known.is_string)

    def fresh(self, raw: yaml.Node) -> Node:
        if raw.tag == "!reset":
            return NOTHING
        if isinstance(raw, yaml.MappingNode):
            return Node(self.pairs(raw))
        if isinstance(raw, yaml.SequenceNode):
            return Node([self.node(item, item.start_mark.line + 1) for item in raw.value])
        if raw.tag == "tag:yaml.org,2002:null":
            return NOTHING
        return Node(expand(str(raw.value).replace("$$", "\\$"), {}).replace("\\$", "$"), 0, raw.tag == _STRING)

    def pairs(self, raw: yaml.MappingNode) -> dict[str, Node]:
        merged: dict[str, Node] = {}
        own: dict[str, Node] = {}
        for key, value in raw.value:
            line = key.start_mark.line + 1
            if key.value == "<<":
                found = self.node(value, line)
                for other in found.list if found.lists else [found]:
                    spend(ENTRY * len(other.mapping))
                    merged = {**other.mapping, **merged}
            elif isinstance(key.value, str):
                own[key.value] = self.node(value, line)
        return {**merged, **own}
