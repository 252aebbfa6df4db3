"""Crashes of a vendor's library while it was probed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

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
    doubtful = ((question, reply) for question, reply in asked.items() if _MARK in msgspec.json.encode(reply.value))
    killed = [f"{question} {path}".strip() for question, reply in doubtful for path in _killed(reply.value)]
    return f"{killed[0]} killed its process" if killed else None


def _killed(value: Any, path: str = "") -> Iterator[str]:
    if value == KILLED:
        yield path
    elif isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, dict):
                yield from _killed(item, f"{path}.{name}".lstrip("."))
