"""A structured kind of text: where it begins and ends, and what it proves."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gpudoctor.model import Reply


@dataclass(frozen=True)
class Reader:
    """One kind of text, such as the output of `nvidia-smi -q -x`.

    kind: what people call it. anchors: literal words, of which one is in its first line. begins: its first line. ends: the first
    line that no longer belongs to it. read: a block's text -> the replies that it proves, None where it is no such text.
    once: the first block is enough.
    """

    kind: str
    anchors: tuple[str, ...]
    begins: re.Pattern[str]
    read: Callable[[str], dict[str, Reply] | None]
    ends: re.Pattern[str] | None = None
    most_lines: int = 20_000
    most_bytes: int = 4 << 20
    once: bool = False
