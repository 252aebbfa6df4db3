"""Splits a reply into parts that can be compared and exchanged one by one: variables, packages, fields, lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpudoctor.model import Reply

WHOLE = ""
STATUS = "status"
MISSING, UNASKED = "missing", "not asked"  # statuses: it does not exist; it was not asked
UNANSWERED = {UNASKED, "timeout"}  # statuses that say nothing about the machine unless they decide
Parts = dict[str, Any]
_MOST_LINES = 400  # of a text that is split into lines
_NAMED = ("name", "path")


def of(reply: Reply) -> Parts:
    """Name of the part -> its value. A reply without a value is one part: its status."""
    if reply.status != "ok" or reply.value is None:
        return {STATUS: reply.status}
    return _of(reply.value)


def exchanged(reply: Reply, name: str, other: Reply) -> Reply:
    """The reply with the other reply's value of this part, or without the part if the other does not have it."""
    if reply.status != "ok" or other.status != "ok" or name in (WHOLE, STATUS):
        return other
    parts, others = _of(reply.value), _of(other.value)
    if name in others:
        parts[name] = others[name]
    else:
        parts.pop(name, None)
    return Reply("ok", _joined(reply.value, parts), reply.detail, reply.seconds)


def _of(value: Any) -> Parts:
    if isinstance(value, dict):
        if "out" in value and "err" in value:
            return {"code": value.get("code"), **{f"out {key}": line for key, line in _lines(str(value["out"])).items()}}
        return {str(key): item for key, item in value.items()}
    if isinstance(value, list) and (key := _key(value)):
        return {str(item[key]): item for item in value}
    if isinstance(value, str):
        return _lines(value)
    return {WHOLE: value}


def _joined(value: Any, parts: Parts) -> Any:
    if isinstance(value, dict):
        if "out" in value and "err" in value:
            lines = [line for key, line in parts.items() if key != "code"]
            return {**value, "code": parts.get("code"), "out": "".join(f"{line}\n" for line in lines)}
        return parts
    if isinstance(value, list) and _key(value):
        return list(parts.values())
    if isinstance(value, str) and WHOLE not in parts:
        return "".join(f"{line}\n" for line in parts.values())
    return parts.get(WHOLE)


def _key(items: list[Any]) -> str | None:
    """The field that gives each item a unique name."""
    if not all(isinstance(item, Mapping) for item in items):
        return None
    for key in _NAMED:
        names = [str(item.get(key)) for item in items if key in item]
        if names and len({*names}) == len(items):
            return key
    return None


def _lines(text: str) -> Parts:
    """A text by the first word of each line, such as MemTotal, ID or a module's name; a single line stays whole."""
    lines = text.splitlines()
    if len(lines) < 2 or len(lines) > _MOST_LINES:
        return {WHOLE: text}
    found: Parts = {}
    for line in lines:
        word = re.split(r"[\s:=]", line.strip(), maxsplit=1)[0]
        name, number = word, 2
        while name in found:
            name, number = f"{word} ({number})", number + 1
        found[name] = line
    return found
