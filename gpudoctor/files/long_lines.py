"""Cuts the lines of a snapshot's strings, as those of a text are cut: readers may take a time that is quadratic in a line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpudoctor.model import Reply, Snapshot

LONGEST = 20_000  # what is kept of a line of a text, with the parts around its hits, is shorter
MOST_BLANK = 100  # lines in a row


def without_long_lines(taken: Snapshot, data: bytes) -> Snapshot:
    """data: the JSON from which it was read."""
    if max(map(len, data.split(b'"'))) <= LONGEST:
        return taken
    return replace(
        taken,
        replies=_of_all(taken.replies),
        host=_of_all(taken.host),
        measured=_of_all(taken.measured),
        experiments=_of_all(taken.experiments),
    )


def _of_all(replies: dict[str, Reply]) -> dict[str, Reply]:
    return {question[:LONGEST]: replace(reply, value=_cut(reply.value)) for question, reply in replies.items()}


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return "\n".join(_lines(value)) if len(value) > LONGEST else value
    if isinstance(value, list):
        return [_cut(part) for part in value]
    if isinstance(value, dict):
        return {name[:LONGEST]: _cut(part) for name, part in value.items()}
    return value


def _lines(text: str) -> Iterator[str]:
    blank = 0
    for line in text.split("\n"):
        blank = 0 if line.strip() else blank + 1
        if blank <= MOST_BLANK:
            yield line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
