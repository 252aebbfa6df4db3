"""Validates the worker's messages on arrival: the worker may run in an untrusted image, whose Python can send anything.

A message is a line with a JSON object. A field of the wrong type is ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from gpudoctor.facts import shapes
from gpudoctor.model import Reply

MOST_LINE_BYTES, MOST_BYTES = 16 << 20, 128 << 20  # of a message; of all, which are read back from a snapshot
MOST_LEVELS = 100  # nested lists and objects
LARGEST_INTEGER = 1 << 64  # counters and masks
LARGEST = 1e15  # for seconds and similar numbers; also rejects infinity and NaN
STATUSES = ("ok", "missing", "denied", "timeout", "died", "error", "skipped", "stopped", "cut", "guarded")
_MEASURED = re.compile(r"sampler|import:[\w.-]+|[\w-]+:(?:all|gpu\d{1,4})")
_REPLY = frozenset(field.name for field in fields(Reply))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and _is_encodable(value)


def _is_encodable(text: str) -> bool:
    """JSON can contain a lone surrogate (half of a character), which cannot be written to a file."""
    return text.isascii() or not re.search("[\ud800-\udfff]", text)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_readings(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "hello": lambda value: isinstance(value, list),
    "folder": _is_text,
    "pid": lambda value: isinstance(value, int) and value > 1,
    "asking": _are_names,
    "running": _are_names,
    "left": _is_number,
    "seen": lambda value: isinstance(value, dict) and all(map(_are_readings, value.values())),
    "question": _is_text,
    "measured": lambda value: isinstance(value, str) and bool(_MEASURED.fullmatch(value)),
    "reply": lambda value: isinstance(value, dict),
    "end": lambda value: value is True,
    "more": lambda value: value is True,
    "inherited": lambda value: isinstance(value, dict) and not unkept([value]),
    "refused": _is_text,
    "again": _is_text,
    # From the shell in a container.
    "python": _is_text,
    "ctypes": _is_text,
    "broken": _is_text,
    "ended": lambda value: isinstance(value, int),
}


def message(line: bytes) -> dict[str, Any]:
    """The known fields of a message that have the right type; empty if the line is not a message (a line cut off by a kill)."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    found = said.items() if isinstance(said, dict) else ()
    return {name: value for name, value in found if name in _FIELDS and _FIELDS[name](value)}


def reply(said: dict[str, Any]) -> Reply:
    """The reply in a message; if it is invalid, an error with the reason, so that only this question is lost."""
    given = said.get("reply")
    wrong = _wrong(given) if given is not None else "the message contains none"
    if wrong or given is None:
        return Reply("error", None, f"invalid reply: {wrong}")
    asked = f"measured {said['measured']}" if "measured" in said else said.get("question", "")
    return shapes.fitting(asked, Reply(**given))


def _wrong(given: dict[str, Any]) -> str:
    """Why a reply cannot be kept, "" if it can."""
    if given.keys() != _REPLY:
        return f"its fields are not {', '.join(sorted(_REPLY))}"
    if given["status"] not in STATUSES:
        return "its status is none that there is"
    if not _is_text(given["detail"]):
        return "its detail is not a text"
    if not _is_number(given["seconds"]):
        return "its seconds are not a number"
    return unkept([given["value"]])


def unkept(values: list[Any]) -> str:
    """Why values cannot be kept in a snapshot, "" if they can. Checks level by level, as readers of the snapshot recurse."""
    for _ in range(MOST_LEVELS):
        if not all(_is_encodable(part) for part in values if isinstance(part, str)):
            return "its value holds half a character"
        if any(abs(part) > LARGEST_INTEGER for part in values if isinstance(part, int)):
            return "its value holds an integer of more than 64 bits"
        values = [part for value in values if isinstance(value, (dict, list)) for part in _parts(value)]
        if not values:
            return ""
    return f"its value is more than {MOST_LEVELS} levels deep"


def _parts(value: dict[str, Any] | list[Any]) -> list[Any]:
    return [*value, *value.values()] if isinstance(value, dict) else value
