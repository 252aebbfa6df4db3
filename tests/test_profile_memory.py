"""GPU memory in a profile: from a snapshot as torch's allocator makes it to the tables and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from simulated import training
from test_profile import problems, report, well

from gpudoctor.checkup import Checkup
from gpudoctor.facts.job.allocations import Allocations
from gpudoctor.facts.job.traced import Rank
from gpudoctor.jobs.tracing import memory
from gpudoctor.report import profiled_memory
from gpudoctor.worker.tracing import allocated
from gpudoctor.worker.tracing.sampler import Sampler

GIB = 1 << 30
HALF = GIB // 2
TORCH = "/opt/venv/lib/python3.12/site-packages/torch/nn/functional.py"


@dataclass
class Allocator:
    """Of one segment for each block, as long as no free one fits; it splits them, and never joins them."""

    segments: dict[int, list[list[Any]]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    most: int = 0

    def allocate(self, size: int, line: int) -> int:
        frames = [
            {"filename": TORCH, "line": 5, "name": "linear"},
            {"filename": "/home/me/train.py", "line": line, "name": "step"},
        ]
        for blocks in self.segments.values():
            for number, (at, room, state, _) in enumerate(blocks):
                if state == "inactive" and room >= size:
                    rest = [[at + size, room - size, "inactive", []]] if room > size else []
                    blocks[number : number + 1] = [[at, size, "active_allocated", frames], *rest]
                    return self._noted("alloc", at, size, frames)
        at = 1 << 40 | len(self.segments) << 36
        self._noted("segment_alloc", at, size, frames)
        self.segments[at] = [[at, size, "active_allocated", frames]]
        return self._noted("alloc", at, size, frames)

    def free(self, at: int) -> None:
        block = next(block for blocks in self.segments.values() for block in blocks if block[0] == at)
        self._noted("free_requested", at, block[1], [])
        block[2:] = ["inactive", []]
        self._noted("free_completed", at, block[1], [])

    def _noted(self, action: str, at: int, size: int, frames: Any) -> int:
        self.most = max(self.most, self.in_use)
        event = {"action": action, "addr": at, "size": size, "stream": 0, "time_us": 1000 * len(self.events), "frames": frames}
        self.events.append(event)
        return at

    @property
    def in_use(self) -> int:
        return sum(block[1] for blocks in self.segments.values() for block in blocks if block[2] != "inactive")

    def snapshot(self) -> dict[str, Any]:
        segments = [
            {
                "address": at,
                "total_size": sum(block[1] for block in blocks),
                "device": 0,
                "segment_type": "large",
                "blocks": [
                    {"address": one, "size": size, "requested_size": size, "state": state, "frames": frames}
                    for one, size, state, frames in blocks
                ],
            }
            for at, blocks in self.segments.items()
        ]
        return {"segments": segments, "device_traces": [self.events], "allocator_settings": {}}


@pytest.fixture
def trained() -> tuple[dict[str, Any], Allocator]:
    """The parameters were allocated before the history began; two steps with activations of other sizes, which split segments."""
    allocator = Allocator()
    weight = allocator.allocate(2 * GIB, 3)
    allocator.events.clear()
    for size in (4, 1):
        held = [allocator.allocate(size * GIB, 12), allocator.allocate(HALF, 13), allocator.allocate(GIB, 14)]
        for each in held:
            allocator.free(each)
    allocator.allocate(HALF, 20)
    tensor = SimpleNamespace(is_cuda=True, grad=None, untyped_storage=lambda: SimpleNamespace(data_ptr=lambda: weight))
    optimizer = SimpleNamespace(param_groups=[{"params": [tensor]}], state={})
    told = allocated.Told(Sampler(0).kind).of(allocator.snapshot(), 0, allocated.known(optimizer))
    return told, allocator


def test_the_peak_has_its_holders_with_their_lines(trained: tuple[dict[str, Any], Allocator]) -> None:
    told, allocator = trained
    found = Allocations(memory.profile(told))
    assert found.peak == allocator.most == 2 * GIB + 4 * GIB + HALF + GIB
    assert found.holders == (
        ("/home/me/train.py:12 (step)", 4 * GIB, 1),
        ("parameters", 2 * GIB, 1),
        ("/home/me/train.py:14 (step)", GIB, 1),
        ("/home/me/train.py:13 (step)", HALF, 1),
    )
    assert (found.reserved, found.lost) == (2 * GIB + 4 * GIB + HALF + GIB, 0)
    assert (found.between + found.whole, found.largest_free) == (5 * GIB, GIB + HALF)
    assert found.course[0][1] >= 2 * GIB
    assert found.course[-1][1] == 2 * GIB + HALF
    assert max(used for _, used, _ in found.course) == found.peak


def test_full_memory_in_fragments_is_a_problem(trained: tuple[dict[str, Any], Allocator], tmp_path: Path) -> None:
    device = {"memory_bytes": 10 * GIB, "capability": [9, 0]}
    of_program = training(well).profile(tmp_path, allocations=trained[0], device=device, memory={"allocated_bytes.all.peak": GIB})
    assert problems(report(of_program)) == []
    of_program["allocations"] |= {"reserved_peak_bytes": 9 * GIB, "reserved_at_peak_bytes": 9 * GIB}
    found = report(of_program)
    assert problems(found) == ["gpu-memory-in-fragments"]
    assert "90 % of the GPU's memory" in found.diagnosis[0].message
    shown = Checkup(found).render("text")
    assert "expandable_segments:True: about 7.50 GiB reserved instead of 9.00" in " ".join(shown.split())
    of_program["device"]["memory_bytes"] = 80 * GIB
    assert problems(report(of_program)) == []


@pytest.mark.parametrize("told", [None, {}, {"events": 5}, {"segments": [], "blocks": [], "events": [[]], "places": []}, []])
def test_what_is_no_history_has_no_table(told: Any) -> None:
    assert memory.profile(told) == {}


def test_a_program_that_allocates_nothing_has_a_table() -> None:
    found = memory.profile({"segments": [], "blocks": [], "events": [], "places": [], "is_whole": True})
    assert (found["peak_bytes"], found["course"]) == (0, [])
    rank = Rank({"allocations": found, "memory": {}, "calls": {}})
    assert "no change" in profiled_memory.section(rank).lines[-1]


def test_the_history_of_the_program_itself_is_left_alone() -> None:
    called: list[str] = []
    state = SimpleNamespace(_cuda_isHistoryEnabled=lambda: True)
    of_memory = SimpleNamespace(_record_memory_history=lambda *options, **words: called.append("recorded"))
    torch = SimpleNamespace(_C=state, cuda=SimpleNamespace(memory=of_memory, get_allocator_backend=lambda: "native"))
    history = allocated.History(torch, str)
    history.start()
    history.stop(None)
    assert (called, history.found) == ([], {})
