"""NVIDIA_REQUIRE_CUDA and similar variables: conditions that NVIDIA's container runtime checks before it starts a container.

A space means "or", a comma means "and": cuda>=12.6 brand=tesla,driver>=535,driver<536
https://github.com/NVIDIA/libnvidia-container/blob/main/src/cli/dsl.c
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TERM = re.compile(r"([^<>=!]+)([<>=!]+)(.+)")
NAMES = ("cuda", "driver", "arch", "brand")


def holds(expression: str, known: Mapping[str, str]) -> bool | None:
    """Whether cuda, driver, arch and brand satisfy it; None if that depends on an unknown one.

    ValueError for an expression that the runtime rejects as invalid.
    """
    answers = [_all(clause, known) for clause in clauses(expression)]
    if not answers or True in answers:
        return True
    return None if None in answers else False


def clauses(expression: str) -> Iterator[list[tuple[str, str, str]]]:
    """Each alternative as its terms: [("brand", "=", "tesla"), ("driver", ">=", "535")]."""
    for clause in expression.split():
        yield [_term(text) for text in clause.split(",") if text]


def branches(expression: str) -> tuple[int, ...]:
    """The driver branches that it names besides the CUDA release: those that the image's cuda-compat is made for."""
    found = [
        int(value)
        for clause in clauses(expression)
        for name, comparison, value in clause
        if (name, comparison) == ("driver", ">=") and value.isdigit()
    ]
    return tuple(dict.fromkeys(found))


def _term(text: str) -> tuple[str, str, str]:
    match = _TERM.fullmatch(text)
    if not match or match[2] not in _COMPARE or match[1].lower() not in NAMES:
        raise ValueError(f"invalid expression: {text}")
    return match[1].lower(), match[2], match[3]


def _all(clause: list[tuple[str, str, str]], known: Mapping[str, str]) -> bool | None:
    answers = [_one(name, comparison, value, known.get(name)) for name, comparison, value in clause]
    if False in answers:
        return False
    return None if None in answers else True


def _one(name: str, comparison: str, wanted: str, there: str | None) -> bool | None:
    if name == "brand":
        if comparison not in ("=", "!="):
            raise ValueError(f"invalid expression: {name}{comparison}{wanted}")
        return None if there is None else _COMPARE[comparison](there.lower(), wanted.lower())
    right = _numbers(wanted)
    if there is None:
        return None
    pairs = [*zip_longest(_numbers(there), right, fillvalue=0)]
    return _COMPARE[comparison]([left for left, _ in pairs], [right for _, right in pairs])


def _numbers(version: str) -> list[int]:
    if not re.fullmatch(r"[\d.]*\d[\d.]*", version):
        raise ValueError(f"invalid expression: {version}")
    return [int(part) for part in version.split(".") if part]
