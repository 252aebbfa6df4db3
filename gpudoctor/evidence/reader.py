"""A structured text format: where it begins and ends, and what it proves."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gpudoctor.model import Reply


@dataclass(frozen=True, eq=False)  # readers are looked up by the thousand: each is itself, whatever it holds
class Reader:
    """A text format, such as the output of `nvidia-smi -q -x`.

    kind: the usual name; "" for words that only tell where a text comes from.
    anchors: literals, one of which is in its first line. begins: matches its first line. ends: matches the
    first line that does not belong to it. read: a block's text -> the replies that it proves, None if it is a different format.
    once: only the first block is used. alone: a block inside of another reader's block is not used.
    """

    kind: str
    anchors: tuple[str, ...]
    begins: re.Pattern[str]
    read: Callable[[str], dict[str, Reply] | None]
    ends: re.Pattern[str] | None = None
    most_lines: int = 20_000
    most_bytes: int = 4 << 20
    once: bool = False
    alone: bool = False
