"""Which line allocated which GPU memory: torch's own history of its allocator, for a few steps."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, Optional, Tuple

from gpudoctor.worker.tracing.about import unwarned

MOST_EVENTS, MOST_BLOCKS, MOST_PLACES = 30000, 30000, 2000
CHANGES = ("alloc", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom")
Place = Tuple[str, int, str]


class History:
    """Does nothing if the program records a history itself, or has another allocator than torch's."""

    def __init__(self, torch: Any, kind_of: Callable[[str], str]) -> None:
        """kind_of: of a file: "user", "package", "torch" or "python"."""
        self._torch = torch
        self._kind_of = kind_of
        self._is_on = False
        self.found: Dict[str, Any] = {}

    def start(self) -> None:
        with contextlib.suppress(Exception), unwarned():
            if self._torch._C._cuda_isHistoryEnabled() or self._torch.cuda.get_allocator_backend() != "native":
                return
            self._torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=MOST_EVENTS)
            self._is_on = True

    def stop(self, optimizer: Any) -> None:
        """Leaves the allocator as it was."""
        if not self._is_on:
            return
        self._is_on = False
        with contextlib.suppress(Exception), unwarned():
            snapshot = self._torch.cuda.memory._snapshot()
            self.found = Told(self._kind_of).of(snapshot, self._torch.cuda.current_device(), known(optimizer))
        with contextlib.suppress(Exception), unwarned():
            self._torch.cuda.memory._record_memory_history(None, stacks="python")


class Told:
    """A snapshot of torch in short: {"segments", "blocks", "events", "places"}; sizes in bytes, times in microseconds."""

    def __init__(self, kind_of: Callable[[str], str]) -> None:
        self._kind_of = kind_of
        self._places: Dict[Place, int] = {}

    def of(self, snapshot: Dict[str, Any], device: int, held: Dict[int, str]) -> Dict[str, Any]:
        """held: address of a storage -> what it is."""
        segments: List[Any] = []
        blocks: List[Any] = []
        for segment in snapshot["segments"]:
            if segment.get("device", device) != device:
                continue
            segments.append([segment["total_size"], bool(segment.get("is_expandable"))])
            at = segment["address"]
            for block in segment["blocks"]:
                start = block.get("address", at)
                at = start + block["size"]
                if len(blocks) < MOST_BLOCKS:
                    place = self._place(block.get("frames") or ())
                    is_active = block["state"] != "inactive"
                    blocks.append([start, block["size"], is_active, len(segments) - 1, place, held.get(start, "")])
        traces = snapshot.get("device_traces") or []
        events = [
            [
                event["action"],
                event.get("addr", 0),
                event["size"],
                event.get("time_us", 0),
                self._place(event.get("frames") or ()),
            ]
            for event in (traces[device] if device < len(traces) else ())
            if event["action"] in CHANGES
        ]
        is_whole = len(traces[device] if device < len(traces) else ()) < MOST_EVENTS and len(blocks) < MOST_BLOCKS
        return {"segments": segments, "blocks": blocks, "events": events, "places": [*self._places], "is_whole": is_whole}

    def _place(self, frames: Any) -> int:
        """Of the innermost line of the program, else of a package; -1 if there is none."""
        other: Optional[Place] = None
        for frame in frames:
            kind = self._kind_of(frame["filename"])
            place = (frame["filename"], frame["line"], frame["name"])
            if kind == "user":
                return self._number(place)
            other = place if kind == "package" and other is None else other
        return self._number(other) if other else -1

    def _number(self, place: Place) -> int:
        if place not in self._places and len(self._places) >= MOST_PLACES:
            return -1
        return self._places.setdefault(place, len(self._places))


def known(optimizer: Any) -> Dict[int, str]:
    """Addresses of what an optimizer knows."""
    found: Dict[int, str] = {}

    def note(tensor: Any, what: str) -> None:
        with contextlib.suppress(Exception):
            if tensor.is_cuda:
                found[tensor.untyped_storage().data_ptr()] = what

    for group in optimizer.param_groups if optimizer is not None else ():
        for parameter in group["params"]:
            note(parameter, "parameters")
            note(parameter.grad, "gradients")
    for values in optimizer.state.values() if optimizer is not None else ():
        for value in values.values() if isinstance(values, dict) else ():
            note(value, "optimizer_state")
    return found
