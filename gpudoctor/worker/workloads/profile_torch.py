"""PyTorch's profiler records a kernel: it uses CUPTI, which comes with PyTorch and needs a matching driver."""

from __future__ import annotations

import functools
import json
import os
from typing import Any, Dict, List

from gpudoctor.worker.measuring import programs, square
from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload

ELEMENTS = 1 << 24
KERNELS = 3
TRIES = 2  # the first kernels after CUPTI's start are sometimes lost


def run(bench: Bench) -> None:
    """row: {"built_with_cupti", "rows", "kernel", "microseconds", "event_microseconds", "printed"}; or "broken", as in
    square.py."""
    torch = square.cuda_torch()
    bench.step("context")
    torch.cuda.set_device(bench.gpu)
    matrix = torch.ones(ELEMENTS, device="cuda")
    microseconds = by_events(torch, matrix)
    printed = programs.Printed()
    rows: List[Dict[str, Any]] = []
    for number in range(TRIES):
        file = os.path.join(bench.folder, "profile-%d.json" % number)
        found = square.attempt(bench, functools.partial(profiled, torch, matrix, file), step="profiling")
        if found is None:
            return
        rows = found
        if rows:
            break
    first = rows[-1] if rows else {}
    bench.keep(
        "row",
        built_with_cupti=torch.profiler.ProfilerActivity.CUDA in torch.profiler.supported_activities(),
        rows=len(rows),
        kernel=first.get("name", ""),
        microseconds=first.get("dur"),
        event_microseconds=microseconds,
        printed=programs.essence(printed.text()),
    )


def by_events(torch: Any, matrix: Any) -> float:
    """The kernel's time, measured with CUDA events."""
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    matrix * matrix
    before.record()
    matrix * matrix
    after.record()
    torch.cuda.synchronize()
    return float(before.elapsed_time(after)) * 1000


def profiled(torch: Any, matrix: Any, file: str) -> List[Dict[str, Any]]:
    """The kernels in the profiler's trace, as {"name", "dur" in microseconds}."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(KERNELS):
            matrix * matrix
        torch.cuda.synchronize()
    profiler.export_chrome_trace(file)
    with open(file, encoding="utf-8", errors="replace") as trace:
        events = json.load(trace)["traceEvents"]
    return [event for event in events if str(event.get("cat", "")).lower() == "kernel"]


WORKLOAD = Workload(run, runtime="torch", scope=ONCE, seconds=60, typical_seconds=5)
