"""Whether ranges that one recording saw begin are still open.

torch notes the end of a range in the recording that saw it begin. If another one is active by then, the first is gone, and its
memory with it: https://github.com/pytorch/pytorch/pull/188172
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
from typing import Any, Iterator, List, Optional, Tuple

RANGES = {"record_function", "_RecordFunctionFast"}
LAUNCHERS = {"multiprocessing", "distributed"}  # they stay for as long as the program runs


class Scopes:
    """Asked in the main thread. A range is open as long as the call that opened it is on the stack."""

    def __init__(self) -> None:
        self._open: List[Any] = []

    def note(self) -> None:
        """At the end of a recording."""
        self._open = [frame for frame in _stack() if _may_be_in_one(frame)]

    def are_closed(self) -> bool:
        running = {id(frame) for frame in _stack()}
        self._open = [frame for frame in self._open if id(frame) in running and _may_be_in_one(frame)]
        return not self._open


def _stack() -> Iterator[Any]:
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]


def _may_be_in_one(frame: Any) -> bool:
    """Each function of torch may be called by an operator, or be decorated with a range."""
    code = frame.f_code
    parts = code.co_filename.split(os.sep)
    if code.co_name == "decorate_context" and parts[-2:] == ["utils", "_contextlib.py"]:
        return False  # @torch.no_grad() and its like: often around a whole program, and no range
    if "torch" in parts or "triton" in parts:
        return LAUNCHERS.isdisjoint(parts)
    if parts[-1] == "contextlib.py":
        return bool(code.co_name == "inner")
    if RANGES.isdisjoint((*code.co_names, *code.co_varnames, *code.co_freevars)):
        return False
    blocks = _blocks(code.co_filename)
    return blocks is None or any(first <= (frame.f_lineno or 0) <= last for first, last in blocks)


@functools.lru_cache(maxsize=64)
def _blocks(file: str) -> Optional[Tuple[Tuple[int, int], ...]]:
    """The lines of each `with` that opens a range; None if the source cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return None
    blocks = [node for node in ast.walk(tree) if isinstance(node, (ast.With, ast.AsyncWith)) and _opens_one(node)]
    return tuple((node.lineno, node.end_lineno or node.lineno) for node in blocks) or None


def _opens_one(node: Any) -> bool:
    names = {getattr(part, "attr", getattr(part, "id", "")) for item in node.items for part in ast.walk(item.context_expr)}
    return not RANGES.isdisjoint(names)
