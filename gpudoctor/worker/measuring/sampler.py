"""Watches the GPUs during the measurements: clocks, power, temperature, throttling, PCIe link, and other processes.

Runs in a separate process, so that no workload waits for NVML.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import select
import signal
import statistics
import time
from collections import Counter
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from gpudoctor.worker.child import Channel, die_with_parent, talking
from gpudoctor.worker.measuring.history import History
from gpudoctor.worker.measuring.watching.observer import Observer
from gpudoctor.worker.measuring.watching.record import Record
from gpudoctor.worker.reply import Reply

INTERVAL_SECONDS, LONG_INTERVAL_SECONDS = 0.02, 0.25
MOST_SAMPLES = 6000  # of one GPU, in memory
LAST_COUNTERS_SECONDS = 1.0
LAST_OF_LONG = 5  # times as long: the links of eight GPUs have some hundred counters
PROCESSES_EVERY = 15  # rounds
COUNTERS = {
    "ecc_corrected": lambda nvml, handle: nvml.nvmlDeviceGetTotalEccErrors(handle, 0, 0),
    "ecc_uncorrected": lambda nvml, handle: nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0),
    "pcie_replays": lambda nvml, handle: nvml.nvmlDeviceGetPcieReplayCounter(handle),
    "remapped_rows": lambda nvml, handle: sum(nvml.nvmlDeviceGetRemappedRows(handle)[:2]),
}
LIMITS = {
    "slowdown_celsius": lambda nvml, handle: nvml.nvmlDeviceGetTemperatureThreshold(handle, 1),
    "memory_celsius": lambda nvml, handle: nvml.nvmlDeviceGetTemperatureThreshold(handle, 2),
}
READINGS = {
    "sm_mhz": lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, 1),
    "memory_mhz": lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, 2),
    "watts": lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    "celsius": lambda nvml, handle: nvml.nvmlDeviceGetTemperature(handle, 0),
    "reasons": lambda nvml, handle: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
    "pcie_generation": lambda nvml, handle: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
    "pcie_width": lambda nvml, handle: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
}
SUMMARIES: Dict[str, Callable[[List[Any]], Any]] = {
    "sm_mhz": statistics.median,
    "memory_mhz": statistics.median,
    "watts": max,
    "celsius": max,
    "memory_celsius": max,
    "pcie_generation": max,
    "pcie_width": max,
}
Sample = Dict[str, Any]


class Samples:
    """The samples of one GPU in time order. Older samples are thinned out and dropped after some minutes."""

    def __init__(self) -> None:
        self._times: List[float] = []
        self._samples: List[Sample] = []

    def keep(self, at: float, sample: Sample) -> None:
        self._times.append(at)
        self._samples.append(sample)
        if len(self._times) > MOST_SAMPLES:
            del self._times[: MOST_SAMPLES // 2 : 2], self._samples[: MOST_SAMPLES // 2 : 2]

    @property
    def last(self) -> Sample:
        return self._samples[-1] if self._samples else {}

    def readings(self) -> Sample:
        return {name: value for name, value in self.last.items() if name != "others"}

    @property
    def latest(self) -> float:
        return self._times[-1] if self._times else 0.0

    def between(self, began: float, ended: float) -> List[Sample]:
        return self._samples[bisect.bisect_left(self._times, began) : bisect.bisect_right(self._times, ended)]


class Sampler:
    """The parent's side: a process that sends samples until it is stopped. Works with select."""

    def __init__(self, gpus: Sequence[int], is_long: bool = False) -> None:
        """gpus: NVML's indices. is_long: samples for many minutes, less often, and all that is watched meanwhile."""
        self.limits: Dict[int, Dict[str, int]] = {}
        self.counters: Dict[int, Dict[str, Dict[str, int]]] = {}
        self.failure = ""
        self.samples = {gpu: Samples() for gpu in gpus}
        self.began = time.monotonic()
        self.is_long = is_long
        self.record = Record(gpus, self.began)
        self.histories = {gpu: History(self.began) for gpu in gpus}
        worker = os.getpid()
        self.child, self.lines = talking(lambda channel: _watch(channel, gpus, worker, is_long))

    def take(self) -> None:
        """Reads the samples since the last call."""
        for line in self.lines.read():
            self.hear(line)
        manner = self.child.killed() if self.lines.ended else ""
        if manner:
            self.failure = self.failure or "the process that watches NVML: " + manner

    def hear(self, line: Dict[str, Any]) -> None:
        if "failure" in line:
            self.failure = line["failure"]
        elif "limits" in line:
            self.limits[line["gpu"]] = line["limits"]
        elif "counters" in line:
            self.counters.setdefault(line["gpu"], {})[line["when"]] = line["counters"]
        elif "sample" in line:
            gpu, at, sample = line["gpu"], line["at"], line["sample"]
            self.samples[gpu].keep(at, sample)
            self.histories[gpu].keep(at, sample)
            self.record.keep_sample(gpu, at, sample)
        else:
            self.record.hear(line)

    def seen(self) -> Dict[int, Sample]:
        """The last readings of each GPU, with how many errors there were."""
        return {gpu: dict(samples.readings(), errors=self.record.errors(gpu)) for gpu, samples in self.samples.items()}

    def has_seen(self, moment: float) -> bool:
        """Whether all samples until then have arrived, or never will."""
        return self.lines.ended or all(samples.latest >= moment for samples in self.samples.values())

    def during(self, gpu: int, began: float, ended: float) -> Optional[Dict[str, Any]]:
        """The state of the GPU in a time window, in seconds of time.monotonic; None without samples."""
        inside = self.samples[gpu].between(began, ended)
        return summed_up(inside) if inside else None

    def replies(self) -> Iterator[Tuple[str, Reply]]:
        """What it saw over the whole run."""
        for gpu, counters in self.counters.items():
            yield "counters:gpu%d" % gpu, Reply("ok", counters)
        for gpu, history in self.histories.items():
            value = history.as_value()
            if value:
                yield "history:gpu%d" % gpu, Reply("ok", value)
        yield from self.record.replies()
        if self.failure:
            yield "sampler", Reply("error", None, self.failure)

    def stop(self) -> None:
        """Reads the last counters; kills a sampler that is stuck in NVML."""
        self.child.signal(signal.SIGTERM)
        end = time.monotonic() + LAST_COUNTERS_SECONDS * (LAST_OF_LONG if self.is_long else 1)
        while not self.lines.ended and (left := end - time.monotonic()) > 0:
            if select.select([self.lines], [], [], left)[0]:
                self.take()
        if not self.lines.ended:
            self.failure = "NVML does not answer"
        self.child.killed()
        self.lines.close()


def summed_up(samples: Sequence[Sample]) -> Dict[str, Any]:
    """Medians of the clocks, maxima of the rest, and for each throttle reason the fraction of samples that had it."""
    found: Dict[str, Any] = {"samples": len(samples)}
    for name, summary in SUMMARIES.items():
        known = [sample[name] for sample in samples if name in sample]
        if known:
            found[name] = summary(known)
    masks = Counter(sample["reasons"] for sample in samples if "reasons" in sample)
    bits = sorted({1 << number for mask in masks for number in range(mask.bit_length()) if mask >> number & 1})
    shares = {bit: sum(count for mask, count in masks.items() if mask & bit) / sum(masks.values()) for bit in bits}
    if known := [sample["watts"] for sample in samples if "watts" in sample]:
        found["median_watts"] = statistics.median(known)
    found["reasons"] = {"%#x" % bit: round(share, 2) for bit, share in shares.items()}
    others = {other["pid"]: other for sample in samples for other in sample.get("others", ())}
    if others:
        found["others"] = list(others.values())
    return found


def _watch(channel: Channel, gpus: Sequence[int], worker: int, is_long: bool) -> None:
    """Runs the sampler from start to exit."""
    die_with_parent()
    stopped: List[bool] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(True))
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = {gpu: pynvml.nvmlDeviceGetHandleByIndex(gpu) for gpu in gpus}
        _send_counters(channel, "before", pynvml, handles)
        observer = _observer(channel, pynvml, handles) if is_long else None
        _sample(channel, pynvml, handles, worker, stopped, observer)
        if observer:
            observer.look(last=True)
            observer.close()
        _send_counters(channel, "after", pynvml, handles)
    except Exception as failure:
        channel.send(failure="%s: %s" % (type(failure).__name__, failure))


def _observer(channel: Channel, nvml: Any, handles: Dict[int, Any]) -> Observer:
    for gpu, handle in handles.items():
        channel.send(gpu=gpu, limits=_known(nvml, handle, LIMITS))
    return Observer(channel, nvml, handles)


def _send_counters(channel: Channel, when: str, nvml: Any, handles: Dict[int, Any]) -> None:
    for gpu, handle in handles.items():
        channel.send(gpu=gpu, when=when, counters=_known(nvml, handle, COUNTERS))


def _sample(
    channel: Channel, nvml: Any, handles: Dict[int, Any], worker: int, stopped: List[bool], observer: Optional[Observer]
) -> None:
    others: Dict[int, List[Dict[str, Any]]] = {}
    for number in itertools.count():
        if stopped or os.getppid() != worker:
            return
        next_round = time.monotonic() + (LONG_INTERVAL_SECONDS if observer else INTERVAL_SECONDS)
        if observer:
            observer.look()
        for gpu, handle in handles.items():
            if number % PROCESSES_EVERY == 0:
                others[gpu] = _others(nvml, handle, worker)
            at = time.monotonic()
            sample = _known(nvml, handle, READINGS)
            if observer:
                sample.update(observer.gauges[gpu])
            channel.send(gpu=gpu, at=at, sample=dict(sample, others=others[gpu]) if others[gpu] else sample)
        time.sleep(max(0.0, next_round - time.monotonic()))


def _known(nvml: Any, handle: Any, readings: Dict[str, Callable[[Any, Any], Any]]) -> Dict[str, Any]:
    """The readings of this GPU; a getter that fails is left out."""
    found = {}
    for name, read in readings.items():
        with contextlib.suppress(Exception):
            found[name] = read(nvml, handle)
    return found


def _others(nvml: Any, handle: Any, worker: int) -> List[Dict[str, Any]]:
    """The processes on the GPU that do not belong to this run."""
    try:
        entries = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except Exception:
        return []
    return [
        {"pid": entry.pid, "name": name, "mib": (entry.usedGpuMemory or 0) >> 20}
        for entry in entries
        if (name := _name(entry.pid)) and not is_below(entry.pid, worker)
    ]


def _name(pid: int) -> str:
    """The command's name; "" if the process has ended."""
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def is_below(pid: int, ancestor: int) -> bool:
    """Whether a process is `ancestor` or descends from it."""
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False
