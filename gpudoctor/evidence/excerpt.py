"""The kept part of a text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpudoctor.evidence.blocks import Block


@dataclass
class Excerpt:
    """The kept part of a text: lines by number (starting at 1) and blocks; its size; how many hits, at least, were left out."""

    lines: dict[int, str] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    total_lines: int = 0
    bytes: int = 0
    left_out: int = 0

    def value(self) -> dict[str, Any]:
        """The form stored in a snapshot."""
        lines = [[number, text] for number, text in sorted(self.lines.items())]
        return {"bytes": self.bytes, "total_lines": self.total_lines, "left_out": self.left_out, "lines": lines}
