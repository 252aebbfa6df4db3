"""The GPU memory of a profiled program: how much, who holds it, how it went, and what other settings would change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.facts.job.allocations import Allocations
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs import traced_memory
from gpudoctor.report.section import Row, Section

GIB, MIB = 1 << 30, 1 << 20
BARS = "▁▂▃▄▅▆▇█"
MOST_HOLDERS = 8


def section(rank: Rank) -> Section:
    found = rank.allocations
    rows = [*_counted(rank), *(_recorded(found) if found else ())]
    return Section("GPU memory", ("", "GiB"), tuple(rows), tuple(_lines(rank, found) if found else ()))


def _counted(rank: Rank) -> Iterator[Row]:
    """By torch's counters, since the program began."""
    peak = rank.memory.get("allocated_bytes.all.peak") or 0
    holders = rank.value.get("holders") or {}
    held = sum(holders.values())
    found = {
        "Peak of the tensors": peak,
        "  parameters": holders.get("parameters"),
        "  gradients": holders.get("gradients"),
        "  optimizer state": holders.get("optimizer_state"),
        "  the rest: activations, buffers, workspaces": max(0, peak - held) if held else None,
        "Reserved by torch, at most": rank.memory.get("reserved_bytes.all.peak"),
        "Reserved in pieces that are only partly used": rank.memory.get("inactive_split_bytes.all.current"),
        "Memory of the GPU": rank.device.get("memory_bytes"),
    }
    yield from ((name, _gib(size)) for name, size in found.items() if size is not None)


def _recorded(found: Allocations) -> Iterator[Row]:
    """By the history of the allocator, in the steps in detail."""
    yield "In use at most, in the steps in detail", _gib(found.peak)
    for name, size, blocks in found.holders[:MOST_HOLDERS]:
        yield f"  {name}, {blocks} block{'s' * (blocks != 1)}", _gib(size)
    yield "Reserved then, but not in use", _gib(found.lost)
    yield f"Free at the end between blocks in use, {found.pieces} pieces", _gib(found.between)
    yield "Free at the end in whole segments", _gib(found.whole)
    yield "Largest free block", _gib(found.largest_free)


def _lines(rank: Rank, found: Allocations) -> Iterator[str]:
    if course := found.course:
        used = [each for _, each, _ in course]
        yield f"In use over {course[-1][0]:.1f} ms: {_bars(used)} ({_gib(min(used))} to {_gib(found.peak)} GiB)"
    expandable = traced_memory.with_expandable_segments(found)
    if expandable is not None:
        less = found.reserved - expandable
        words = f"about {_gib(expandable)} GiB reserved instead of {_gib(found.reserved)}" if less >= MIB else "no change"
        yield f"With expandable_segments:True: {words}."
    limits = f"out of memory below {_gib(found.peak)} GiB, retries below {_gib(found.reserved)} GiB"
    yield f"With a limit (set_per_process_memory_fraction): {limits}."
    yield _preallocated(rank)


def _preallocated(rank: Rank) -> str:
    if not rank.driver_allocations:
        return "With memory allocated before the steps: no change, as they make no call of cudaMalloc or cudaFree."
    seconds, retries = float(rank.calls.get("allocating_s") or 0.0), rank.grown("num_alloc_retries")
    spared = f"{rank.driver_allocations} calls of cudaMalloc and cudaFree ({1000 * seconds:.2f} ms)"
    spared += f" and {retries} retries" if retries else ""
    return f"With memory allocated before the steps: without {spared} in the profiled steps."


def _bars(values: Sequence[float]) -> str:
    most = max(values) or 1.0
    return "".join(BARS[min(len(BARS) - 1, int(value / most * (len(BARS) - 1) + 0.5))] for value in values)


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"
