"""A program that trains on a GPU, simulated: the trace that torch's profiler would write, and what the tracer tells beside it.

The host launches into one stream, which works in order. Times are in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpudoctor.jobs.tracing import run
from gpudoctor.model import SNAPSHOT_SCHEMA, Reply, Snapshot

BASE_NS = 1_790_857_026_000_000_000
MAIN, BACKWARD = 4711, 4712
SAMPLE_US = 200.0
GEMM = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT"
SGEMM = "ampere_sgemm_128x64_tn"
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
Kernels = Sequence[tuple[str, float]]


class Program:
    """events: those of the trace. Each method is one thing that a program does."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.host = self.gpu = 1000.0
        self.side = 1000.0  # the stream of the collectives
        self.steps_ns: list[int] = []
        self.steps_gpu: list[float] = []
        self.samples: list[tuple[int, int]] = []
        self.places: list[Any] = []
        self.link = 0
        self.about: dict[str, Any] = {"pid": 4711, "has_cuda": True, "state": "saved"}

    def operator(self, name: str, kernels: Kernels = (), host: float = 5.0, dims: Any = None, line: str = "") -> None:
        """Launches kernels; host: its own time for each of them and once more."""
        with_shapes = {"Input Dims": dims, "Input type": ["float"] * len(dims)} if dims else {}
        with self._inside(name, line, with_shapes):
            self.host += host
            for kernel, lasts in kernels:
                self._launch(kernel, lasts)
                self.host += host

    def item(self, line: str = "train.py:12") -> None:
        with self._inside("aten::item", line):
            self._copy("Memcpy DtoH (Device -> Pageable)", 4, 1.5)
            self._wait()

    def copy(self, size: int, lasts: float, memory: str = "Pageable", line: str = "train.py:8") -> None:
        with self._inside("aten::to", line):
            self._copy(f"Memcpy HtoD ({memory} -> Device)", size, lasts)
            if memory == "Pageable":
                self._wait()

    def python(self, lasts: float, line: str = "train.py:20") -> None:
        start = self.host
        self.host += lasts
        self._sample(start, line)

    def load(self, lasts: float) -> None:
        start = self.host
        self.host += lasts
        self._host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start)
        self._sample(start, "train.py:5")

    def malloc(self, lasts: float, name: str = "cudaMalloc") -> None:
        start = self.host
        self.host += lasts
        self._host("cuda_runtime", name, start)

    def all_reduce(self, lasts: float, waits: bool) -> None:
        """On a stream of its own. waits: what is launched next starts after it."""
        start = max(self.side, self.gpu if waits else self.host)
        self.side = start + lasts
        self.gpu = self.side if waits else self.gpu
        self._gpu("kernel", NCCL, start, lasts, {"stream": 20})

    def step(self) -> None:
        self.steps_ns.append(self._ns(self.host))
        self.steps_gpu.append(max(self.host, self.gpu))

    # What a profiler records.

    def _inside(self, name: str, line: str, args: dict[str, Any] | None = None) -> Any:
        return _Inside(self, name, line, args or {})

    def _launch(self, name: str, lasts: float) -> None:
        start = self.host
        self.host += 3.0
        self.link += 1
        self._host("cuda_runtime", "cudaLaunchKernel", start, {"correlation": self.link})
        begins = max(self.gpu, self.host + 2.0)
        self.gpu = begins + lasts
        args = {"stream": 7, "correlation": self.link, "grid": [128, 1, 1], "block": [256, 1, 1], "registers per thread": 32}
        self._gpu("kernel", name, begins, lasts, {**args, "shared memory": 0, "est. achieved occupancy %": 50})

    def _copy(self, name: str, size: int, lasts: float) -> None:
        start = self.host
        self.link += 1
        begins = max(self.gpu, start + 3.0)
        self.gpu = begins + lasts
        self._gpu("gpu_memcpy", name, begins, lasts, {"stream": 7, "correlation": self.link, "bytes": size})
        self.host += 4.0
        self._host("cuda_runtime", "cudaMemcpyAsync", start, {"correlation": self.link})

    def _wait(self) -> None:
        start = self.host
        self.host = max(self.host + 1.0, self.gpu + 4.0)
        self._host("cuda_runtime", "cudaStreamSynchronize", start)

    def _gpu(self, kind: str, name: str, start: float, lasts: float, args: dict[str, Any]) -> None:
        self.events.append({"ph": "X", "cat": kind, "name": name, "ts": start, "dur": lasts, "args": {"device": 0, **args}})

    def _host(self, kind: str, name: str, start: float, args: dict[str, Any] | None = None) -> None:
        event = {"ph": "X", "cat": kind, "name": name, "pid": 4711, "tid": MAIN, "ts": start, "dur": self.host - start}
        self.events.append({**event, "args": args or {}})

    def _sample(self, start: float, line: str) -> None:
        """The sampler sees a line for as long as it lasts."""
        if not line:
            return
        file, _, number = line.partition(":")
        place = [[file, int(number), "train"], [file, int(number), "train"], "train"]
        if place not in self.places:
            self.places.append(place)
        at = start - start % SAMPLE_US + SAMPLE_US
        while at < self.host:
            self.samples.append((self._ns(at), self.places.index(place)))
            at += SAMPLE_US

    @staticmethod
    def _ns(at: float) -> int:
        return BASE_NS + round(at * 1000)

    # What is left of it.

    def told(self, **more: Any) -> dict[str, Any]:
        steps = len(self.steps_ns)
        window: dict[str, Any] = {
            "began_ns": self._ns(1000.0),
            "ended_ns": self._ns(self.host + 1e6),
            "began_steps": 1,
            "ended_steps": steps + 1,
        }
        outside = [self._ns(900.0), *self.steps_ns]
        window["steps_gpu_ms"] = {step + 1: (self.steps_gpu[step] - self.steps_gpu[step - 1]) / 1000 for step in range(1, steps)}
        found = {
            **self.about,
            **window,
            "steps_ns": outside,
            "optimizer_steps": steps,
            "samples": self.samples,
            "places": self.places,
        }
        return {**found, **({} if steps else {"began_steps": 0, "ended_steps": 0}), **more}

    def profile(self, folder: Path, **more: Any) -> dict[str, Any]:
        """Through a file, as it comes from a program."""
        return run.of_trace(self._written(folder / "trace.json", self.events), self.told(**more))

    def profile_with_detail(self, folder: Path, **more: Any) -> dict[str, Any]:
        """Operators, lines and samples are in the detail only."""
        self._written(folder / "detail-1.json", self.events)
        file = self._written(folder / "trace-1.json", [event for event in self.events if event["cat"] != "cpu_op"])
        told = self.told(**more)
        seen = {name: told.pop(name) for name in ("samples", "places")}
        return run.of_trace(file, {**told, "detail": {"began_ns": told["began_ns"], "ended_ns": told["ended_ns"], **seen}})

    @staticmethod
    def _written(file: Path, kept: list[dict[str, Any]]) -> Path:
        events = ",\n".join(json.dumps(event, indent=2) for event in kept)
        head = f'{{"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": {BASE_NS}, "traceEvents": [\n'
        file.write_text(head + events + '\n], "traceName": "x"}', encoding="utf-8")
        return file


class _Inside:
    """An operator around what is done meanwhile."""

    def __init__(self, program: Program, name: str, line: str, args: dict[str, Any]) -> None:
        self.program, self.name, self.line, self.args = program, name, line, args

    def __enter__(self) -> None:
        self.start = self.program.host

    def __exit__(self, *failure: object) -> None:
        self.program.host += 1.0
        self.program._host("cpu_op", self.name, self.start, self.args)
        self.program._sample(self.start, self.line)


def training(each: Callable[[Program], None], steps: int = 10) -> Program:
    program = Program()
    for _ in range(steps):
        each(program)
        program.step()
    return program


def snapshot(*ranks: dict[str, Any], **more: Any) -> Snapshot:
    """Of a program that was profiled; nothing else is known about its machine."""
    value = {"line": "python train.py", "engine": "torch.profiler", "engine_why": "", "nothing": "", "notes": [], **more}
    return Snapshot(
        SNAPSHOT_SCHEMA, "0", "2026-11-23T08:00:00Z", {"job-profile": Reply("ok", {**value, "ranks": [*ranks]})}, level="quick"
    )
