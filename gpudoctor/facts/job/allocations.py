"""What torch's allocator did in a profiled program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpudoctor.facts.guarded import Guarded


class Allocations(Guarded):
    """GPU memory in the steps in detail, as torch's allocator recorded it. Sizes in bytes."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.value = value

    @property
    def peak(self) -> int:
        return int(self.value["peak_bytes"])

    @property
    def reserved(self) -> int:
        """At most."""
        return int(self.value["reserved_peak_bytes"])

    @property
    def lost(self) -> int:
        """Reserved at the peak, but not in use: free pieces that did not fit."""
        return max(0, int(self.value["reserved_at_peak_bytes"]) - self.peak)

    @property
    def between(self) -> int:
        """Free at the end, between blocks in use: torch cannot give it back."""
        return int(self.value["free_between_bytes"])

    @property
    def pieces(self) -> int:
        return int(self.value["pieces"])

    @property
    def whole(self) -> int:
        """Free at the end, in segments without a block in use."""
        return max(0, int(self.value["free_bytes"]) - self.between)

    @property
    def largest_free(self) -> int:
        return int(self.value["largest_free_bytes"])

    @property
    def is_expandable(self) -> bool:
        return bool(self.value["is_expandable"])

    @property
    def holders(self) -> tuple[tuple[str, int, int], ...]:
        """(what, bytes, blocks) of what was in use at the peak, the largest first."""
        rows = self.value["holders"]
        return tuple((_holder(row), int(row["bytes"]), int(row["blocks"])) for row in rows)

    @property
    def course(self) -> tuple[tuple[float, float, float], ...]:
        """(ms, bytes in use, bytes reserved) of equal parts of the time."""
        return tuple((float(at), float(used), float(reserved)) for at, used, reserved in self.value["course"])


HOLDERS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer_state": "optimizer state",
    "earlier": "allocated before the steps in detail",
}


def _holder(row: Mapping[str, Any]) -> str:
    return HOLDERS.get(str(row.get("what"))) or f"{row['file']}:{row['line']} ({row['function']})"
