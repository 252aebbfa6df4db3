"""GPUs that exist only as numbers, under the real loop of `gpudoctor burn`, with a clock that nobody waits for."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpudoctor.model import Reply
from gpudoctor.worker.measuring import bench, guard, torch_gpu
from gpudoctor.worker.measuring.sampler import Sampler, Samples
from gpudoctor.worker.workloads import burn

AMBIENT, TAU_SECONDS = 30.0, 60.0
THERMAL = 0x20  # clocks lowered by software because of heat


@dataclass
class VirtualGpu:
    """tflops: when cold. rise: °C above the room under full load. leak: lost while it warms up. fade: lost in each ten minutes.

    throttles: °C from which its clocks sink. events: second -> what happens, as "others" of a sample or a counter.
    """

    tflops: float = 700.0
    rise: float = 35.0
    leak: float = 0.02
    fade: float = 0.0
    throttles: float = 87.0
    slowdown: int = 92
    events: dict[int, dict[str, Any]] = field(default_factory=dict)

    def celsius(self, second: float) -> float:
        return AMBIENT + self.rise * (1 - math.exp(-second / TAU_SECONDS))

    def speed(self, second: float) -> float:
        over = max(0.0, self.celsius(second) - self.throttles)
        warm = 1 - math.exp(-second / TAU_SECONDS)
        return self.tflops * (1 - self.leak * warm) * (1 - self.fade * second / 600) * (1 - 0.02 * over)


class Stopped(Exception):
    """The guard stopped the load."""


class Run:
    """One GPU under the loop of the workload. now: seconds since it began."""

    def __init__(self, gpu: VirtualGpu, index: int, file: Path) -> None:
        self.gpu = gpu
        self.index = index
        self.file = str(file)
        self.now = 0.0
        self.sampler = Sampler.__new__(Sampler)
        self.sampler.samples = {index: Samples()}
        self.sampler.limits = {index: {"slowdown_celsius": gpu.slowdown}}
        self.sampler.counters = {index: {"before": {"ecc_uncorrected": 1}, "during": {"ecc_uncorrected": 1}}}

    def reply(self, seconds: float) -> Reply:
        status, detail = "ok", ""
        try:
            burn.run(bench.Bench(self.file, [self.index], options={"seconds": seconds, "loads": ["power", "memory"]}))
        except Stopped as why:
            status, detail = "guarded", str(why)
        heard = bench.read(self.file)
        value: dict[str, Any] = dict(heard.values)
        for name, (began, ended) in heard.windows.items():
            seen = self.sampler.during(self.index, began, ended)
            value[name] = dict(value[name], seconds=ended - began, **({"during": seen} if seen else {}))
        return Reply(status, value or None, detail, self.now)

    def stretches(self, wanted: list[str]) -> Iterator[tuple[str, Callable[[float], dict[str, Any]]]]:
        """In the place of Loads.stretches: by turns, without end."""
        while True:
            for load in wanted:
                yield load, self.power if load == "power" else self.memory

    def power(self, seconds: float) -> dict[str, Any]:
        speeds = list(self._pass(seconds))
        shared = {"wrong_words": 0, "wrong": [], "checksum": "a", "verified": True}
        return {"precision": "bf16", "size": 16384, "products": len(speeds), "tflops": sum(speeds) / len(speeds), **shared}

    def memory(self, seconds: float) -> dict[str, Any]:
        list(self._pass(seconds))
        return {"wrong_words": 0, "wrong": [], "patterns": 9, "gb_per_s": 3800.0, "bytes": 120 << 30, "total_bytes": 139 << 30}

    def _pass(self, seconds: float) -> Iterator[float]:
        """One second after the other, as the schedule sees them: a sample, then the guard."""
        for _ in range(max(1, round(seconds))):
            self.now += 1
            celsius = round(self.gpu.celsius(self.now))
            reasons = THERMAL if celsius > self.gpu.throttles else 0
            events: dict[str, Any] = {}
            for at, event in self.gpu.events.items():
                events.update(event if at <= self.now else {})
            if "ecc_uncorrected" in events:
                self.sampler.counters[self.index]["during"] = {"ecc_uncorrected": events["ecc_uncorrected"]}
            sample = {"celsius": celsius, "sm_mhz": 1755, "watts": 690.0, "reasons": reasons, "others": events.get("others", [])}
            self.sampler.samples[self.index].keep(self.now, sample)
            if why := guard.danger(self.sampler):
                raise Stopped(why)
            yield self.gpu.speed(self.now)


def burned(gpus: list[VirtualGpu], seconds: float, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Reply]:
    """GPU (NVML's index) -> the reply of its run."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setattr(torch_gpu, "gpu", lambda bench: None)
    replies = {}
    for index, gpu in enumerate(gpus):
        run = Run(gpu, index, folder / f"gpu{index}")
        clock = SimpleNamespace(monotonic=lambda run=run: run.now)
        monkeypatch.setattr(burn, "time", clock)
        monkeypatch.setattr(bench, "time", clock)
        monkeypatch.setattr(burn, "Loads", lambda *_, run=run: run)
        replies[index] = run.reply(seconds)
    return replies
