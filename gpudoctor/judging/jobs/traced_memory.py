"""What other settings of torch's allocator would change for a profiled program."""

from __future__ import annotations

from gpudoctor.facts.job.allocations import Allocations
from gpudoctor.facts.job.traced import Rank

PAGE = 2 << 20  # of expandable segments


def with_expandable_segments(found: Allocations) -> int | None:
    """Bytes that torch would then reserve, about: what is in use at most, in whole pages. None if it has them already."""
    return None if found.is_expandable else min(found.reserved, -(-found.peak // PAGE) * PAGE)


def share_lost(found: Allocations) -> float:
    """Of what is reserved at the peak."""
    return found.lost / (found.peak + found.lost) if found.peak else 0.0


def share_reserved(found: Allocations, rank: Rank) -> float | None:
    """Of the GPU's memory; None if its size is unknown."""
    size = rank.device.get("memory_bytes")
    return found.reserved / float(size) if size else None
