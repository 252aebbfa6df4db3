# mypy: ignore-errors
import json
import os
import time
from pathlib import Path

running = None
on_gpu = False
made = []
scopes = []


class Trace:
    def __init__(self, began, ended):
        self.began, self.ended = began, ended

    def save(self, path):
        """A kernel for most of the time, launched at its beginning."""
        lasts = (self.ended - self.began) / 1000
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "ts": 1.0, "dur": 2.0}
        kernel = {"ph": "X", "cat": "kernel", "name": "ampere_sgemm_128x64_tn", "ts": 4.0, "dur": 0.9 * lasts}
        args = {"device": 0, "stream": 7, "correlation": 1}
        events = [{**launch, "args": args}, {**kernel, "args": args}] if on_gpu else []
        Path(path).write_text(json.dumps({"baseTimeNanoseconds": self.began, "traceEvents": events}))


def start(activities):
    global running, on_gpu
    on_gpu = "cuda" in activities
    if running is not None:
        raise RuntimeError("Profiler is already enabled on this thread")
    running = time.time_ns()


class profile:  # noqa: N801
    """Only one may run."""

    def __init__(self, use_kineto=False, record_shapes=False, use_device=None):
        made.append(use_device)
        self.kineto_activities = {"cpu", use_device}

    def _prepare_trace(self):
        os.write(2, b"USDT:2026-11-23 07:43:10 1:1 SyncActivityProfilerHandler.cpp:52] profiler_start\n")

    def config(self, create_trace_id=False):
        return None

    def _start_trace(self):
        start(self.kineto_activities)

    def __enter__(self):
        self._prepare_trace()
        self._start_trace()
        return self

    def __exit__(self, *failure):
        global running
        running = None
