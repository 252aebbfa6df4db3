"""GPUs that exist only as numbers, under the real loop of `gpudoctor burn`, with a clock that nobody waits for."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpudoctor.model import Reply
from gpudoctor.worker.measuring import bench, guard, task, torch_gpu
from gpudoctor.worker.measuring.history import History
from gpudoctor.worker.measuring.sampler import Sampler, Samples
from gpudoctor.worker.measuring.watching import numbers, observer
from gpudoctor.worker.measuring.watching.record import Record
from gpudoctor.worker.workloads import burn

AMBIENT, TAU_SECONDS = 30.0, 60.0
LINKS, LONGEST_BATCH = 4, 10
FIELDS = {number: name for name, number in {**numbers.OF_GPU, **numbers.OF_LINK, **numbers.OF_NEW_LINK}.items()}
NOT_SUPPORTED, NO_SUCH_FIELD = 3, 2
THERMAL = 0x20  # clocks lowered by software because of heat


@dataclass
class VirtualGpu:
    """tflops: when cold. rise: °C above the room under full load. leak: lost while it warms up. fade: lost in each ten minutes.

    throttles: °C from which its clocks sink. events: second -> what happens, as "others" or the link of a sample. counts: counter
    ("nvlink_replay:3") -> from which second on it grows, and by how much each. xids: second -> what NVML reports.
    kernel: second -> a line of the kernel log. memory_rise: °C of the memory above the GPU. lacks: counters that it has not.
    """

    tflops: float = 700.0
    rise: float = 35.0
    leak: float = 0.02
    fade: float = 0.0
    throttles: float = 87.0
    slowdown: int = 92
    events: dict[int, dict[str, Any]] = field(default_factory=dict)
    counts: dict[str, tuple[float, float]] = field(default_factory=dict)
    xids: dict[int, int] = field(default_factory=dict)
    kernel: dict[int, str] = field(default_factory=dict)
    memory_rise: float = 8.0
    lacks: tuple[str, ...] = ()

    def celsius(self, second: float) -> float:
        return AMBIENT + self.rise * (1 - math.exp(-second / TAU_SECONDS))

    def speed(self, second: float) -> float:
        over = max(0.0, self.celsius(second) - self.throttles)
        warm = 1 - math.exp(-second / TAU_SECONDS)
        return self.tflops * (1 - self.leak * warm) * (1 - self.fade * second / 600) * (1 - 0.02 * over)


class VirtualNvml:
    """NVML with the fields of one GPU; those after the tenth of a batch come back unset. With NVLink 5 if a counter needs it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.lacks = {*run.gpu.lacks}
        if not any(name.partition(":")[0] in numbers.OF_NEW_LINK for name in run.gpu.counts):
            self.lacks |= {*numbers.OF_NEW_LINK}

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[tuple[int, int]]) -> list[Any]:  # noqa: N802
        return [self._field(FIELDS[number], link, place >= LONGEST_BATCH) for place, (number, link) in enumerate(fields)]

    def _field(self, name: str, link: int, is_unset: bool) -> Any:
        gpu, now = self.run.gpu, self.run.now
        if name in self.lacks:
            return SimpleNamespace(nvmlReturn=NOT_SUPPORTED, valueType=0)
        own = f"{name}:{link}" if name.startswith("nvlink") else name
        began, each = gpu.counts.get(own, (0.0, 0.0))
        value = int(name == "nvlink_state") + int(max(0.0, now - began) * each)
        value = round(gpu.celsius(now) + gpu.memory_rise) if name == "memory_celsius" else max(0, value)
        if name in numbers.RATES:
            value = 15 << 8 | (9 if own in gpu.counts else 254)
        return SimpleNamespace(
            nvmlReturn=0, valueType=0 if is_unset else 3, value=SimpleNamespace(ullVal=0 if is_unset else value)
        )

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        if link >= LINKS:
            raise OSError("no such link")
        return 1

    def nvmlEventSetCreate(self) -> set[int]:  # noqa: N802
        return set()

    def nvmlDeviceRegisterEvents(self, handle: int, types: int, told: set[int]) -> None:  # noqa: N802
        pass

    def nvmlEventSetWait_v2(self, told: set[int], milliseconds: int) -> Any:  # noqa: N802
        for second, code in self.run.gpu.xids.items():
            if second <= self.run.now and second not in told:
                told.add(second)
                return SimpleNamespace(eventType=8, eventData=code)
        raise OSError("timeout")

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(domain=0, bus=BUSES[handle], device=0)


BUSES = (0x05, 0x15, 0x25, 0x35, 0x45, 0x55, 0x65, 0x75)  # of the machine hgx-h200-x8


class VirtualLog:
    """The kernel log of one run."""

    source, why = "kmsg", ""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.told: set[int] = set()

    def close(self) -> None:
        pass

    def read(self) -> list[str]:
        new = {second: line for second, line in self.run.gpu.kernel.items() if second <= self.run.now}
        found = [f"[{1000 + second:12.6f}] {line}" for second, line in new.items() if second not in self.told]
        self.told |= {*new}
        return found


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
        self.sampler.began, self.sampler.failure = 0.0, ""
        self.sampler.samples = {index: Samples()}
        self.sampler.limits = {index: {"slowdown_celsius": gpu.slowdown}}
        self.sampler.counters = {index: {"before": {"ecc_uncorrected": 0}}}
        self.sampler.histories = {index: History(0.0)}
        self.sampler.record = Record([index], 0.0)
        self.observer: Any = None

    def watch(self) -> None:
        channel: Any = SimpleNamespace(send=lambda **line: self.sampler.hear(line))
        self.observer = observer.Observer(channel, VirtualNvml(self), {self.index: self.index})

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
            value[name] = dict(value[name], began=began, seconds=ended - began, **({"during": seen} if seen else {}))
        value |= task.unfinished(heard, 0.0)
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
            if self.observer:
                self.observer.look()
            link = {"pcie_width": 16, "pcie_generation": 5}
            sample = {"celsius": celsius, "sm_mhz": 1755, "watts": 690.0, "reasons": reasons, "others": [], **link}
            sample["memory_celsius"] = celsius + self.gpu.memory_rise
            sample |= events
            self.sampler.hear({"gpu": self.index, "at": self.now, "sample": sample})
            for why in guard.dangers(self.sampler).values():
                raise Stopped(why)
            yield self.gpu.speed(self.now)


def burned(gpus: list[VirtualGpu], seconds: float, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Reply]:
    """GPU (NVML's index) -> the reply of its run."""
    is_watched = any(gpu.counts or gpu.xids or gpu.kernel for gpu in gpus)
    replies = measured(gpus, seconds, folder, monkeypatch, is_watched)
    return {index: replies[f"burn:gpu{index}"] for index in range(len(gpus))}


def measured(
    gpus: list[VirtualGpu], seconds: float, folder: Path, monkeypatch: pytest.MonkeyPatch, is_watched: bool = True
) -> dict[str, Reply]:
    """What the worker sends of a load: of each GPU the run, and what was watched."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setattr(torch_gpu, "gpu", lambda bench: None)
    replies: dict[str, Reply] = {}
    for index, gpu in enumerate(gpus):
        run = Run(gpu, index, folder / f"gpu{index}")
        clock = SimpleNamespace(monotonic=lambda run=run: run.now)
        for module in (burn, bench, observer):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(burn, "Loads", lambda *_, run=run: run)
        monkeypatch.setattr(observer, "KernelMessages", lambda run=run: VirtualLog(run))
        if is_watched:
            run.watch()
        replies[f"burn:gpu{index}"] = run.reply(seconds)
        if run.observer:
            run.observer.close()
        before = replies.get("watch:all")
        replies |= dict(run.sampler.record.replies())
        if before:
            shared = replies["watch:all"].value
            joined = {name: before.value[name] + shared[name] for name in ("lines", "line_seconds", "xids")}
            replies["watch:all"] = replace(before, value={**shared, **joined})
    return replies
