"""The steps of a program's optimizer: when each ended, on the host and on the GPU, and what torch held then."""

from __future__ import annotations

import statistics
import time
from typing import Any, Dict, List, Tuple

LATE = 2.0  # times as long as the others
LATE_SECONDS = 0.05  # and at least that much longer
LEAST_KNOWN = 4
HELD_SECONDS = 0.05  # between two looks at the memory: a look costs as much as some launches
MOST_HELD = 512
ALLOCATED = "allocated_bytes.all.current"


class Steps:
    """ended_ns: since the epoch. held: [number of the step, bytes of all tensors on its GPU]."""

    def __init__(self, torch: Any) -> None:
        self.ended_ns: List[int] = []
        self.held: List[Tuple[int, int]] = []
        self.clock = Clock(torch)
        self._torch = torch
        self._held_ns = 0

    def end(self, has_cuda: bool) -> None:
        """Another step has ended."""
        self.ended_ns.append(time.time_ns())
        if has_cuda:
            self.clock.mark(len(self.ended_ns) - 1)
            if self.ended_ns[-1] - self._held_ns >= HELD_SECONDS * 1e9 and len(self.held) < MOST_HELD:
                self._held_ns = self.ended_ns[-1]
                self.held.append((len(self.ended_ns), self._torch.cuda.memory_stats().get(ALLOCATED, 0)))

    def is_late(self) -> bool:
        """Whether the step that goes on lasts much longer than those before it."""
        known = self.ended_ns[-20:]
        if len(known) <= LEAST_KNOWN:
            return False
        usual = statistics.median(after - before for before, after in zip(known, known[1:]))
        return time.time_ns() - known[-1] >= max(LATE * usual, usual + LATE_SECONDS * 1e9)


class Clock:
    """When the GPU came to the end of each step: the host alone may be many steps ahead."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._events: Dict[int, Any] = {}

    def mark(self, step: int) -> None:
        """Costs a few microseconds, and waits for nothing."""
        if not self._torch.cuda.is_current_stream_capturing():
            event = self._torch.cuda.Event(enable_timing=True)
            event.record()
            self._events[step] = event

    def milliseconds(self) -> Dict[int, float]:
        """Of each step whose end, and the end of the step before it, the GPU has reached."""
        found = {}
        for step, event in self._events.items():
            before = self._events.get(step - 1)
            if before is not None and before.query() and event.query():
                found[step] = before.elapsed_time(event)
        return found
