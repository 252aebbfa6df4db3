"""Crashes of a vendor's library while it was probed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gpudoctor.facts import shared
from gpudoctor.facts.replies import Replies

KILLED = {"died": True}
_MARK = b'"died":true'  # searched first: answers about GPUs have thousands of values


def crash(replies: Replies, topic: str) -> str | None:
    """The step in which the probe of a topic crashed or hung, in words; None if it finished."""
    replies.get(topic)
    asked = replies.starting_with("probe:" + topic) | replies.starting_with(topic)
    for reply in asked.values():
        if reply.status in ("died", "timeout"):
            return reply.detail or reply.status
    doubtful = ((question, reply) for question, reply in asked.items() if _is_doubtful(reply.value))
    killed = [f"{question} {path}".strip() for question, reply in doubtful for path in _killed(reply.value)]
    return f"{killed[0]} killed its process" if killed else None


def _is_doubtful(value: Any) -> bool:
    if isinstance(value, dict) and not isinstance(value, shared.SharedDict):
        return value == KILLED or any(shared.once(part, _has_mark) for part in value.values() if isinstance(part, dict))
    return shared.once(value, _has_mark)


def _has_mark(value: Any) -> bool:
    return _MARK in msgspec.json.encode(value)


def _killed(value: Any, path: str = "") -> Iterator[str]:
    if value == KILLED:
        yield path
    elif isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, dict):
                yield from _killed(item, f"{path}.{name}".lstrip("."))
