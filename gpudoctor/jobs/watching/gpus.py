"""The readings of NVML for each GPU, as often as it costs little: rates at each round, the rest less often."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from gpudoctor.jobs.watching.gpm import Gpm
from gpudoctor.jobs.watching.timeline import Means

MIB = 1 << 20
MOST_PROCESSES = 64  # of one GPU, that are kept
RARE_SECONDS = 10.0
PCIE_EVERY_SECONDS = 10.0  # NVML counts for 20 ms at each call, and blocks meanwhile
GENERATION_RATE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}  # GB/s of a lane in one direction

STILL: dict[str, Callable[[Any, Any], Any]] = {
    "name": lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu),
    "uuid": lambda nvml, gpu: nvml.nvmlDeviceGetUUID(gpu),
    "bus_id": lambda nvml, gpu: nvml.nvmlDeviceGetPciInfo(gpu).busId,
    "memory_mib": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total // MIB,
    "power_limit_watts": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    "default_watts": lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) / 1000,
    "most_sm_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, 1),
    "pcie_gb_per_s": lambda nvml, gpu: (
        GENERATION_RATE[nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu)] * nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)
    ),
    "compute_capability": lambda nvml, gpu: list(nvml.nvmlDeviceGetCudaComputeCapability(gpu)),
    "mig": lambda nvml, gpu: bool(nvml.nvmlDeviceGetMigMode(gpu)[0]),
}
SLOW: dict[str, Callable[[Any, Any], float]] = {
    "sm_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, 1),
    "celsius": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, 0),
    "memory_used_mib": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used / MIB,
}
RARE: dict[str, Callable[[Any, Any], float]] = {
    "memory_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, 2),
    "encoder": lambda nvml, gpu: nvml.nvmlDeviceGetEncoderUtilization(gpu)[0],
    "decoder": lambda nvml, gpu: nvml.nvmlDeviceGetDecoderUtilization(gpu)[0],
}
COUNTERS: dict[str, Callable[[Any, Any], int]] = {
    "ecc_corrected": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, 0, 0),
    "ecc_uncorrected": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0),
    "pcie_replays": lambda nvml, gpu: nvml.nvmlDeviceGetPcieReplayCounter(gpu),
}
PCIE: dict[str, Callable[[Any, Any], float]] = {
    "pcie_tx_mib_s": lambda nvml, gpu: nvml.nvmlDeviceGetPcieThroughput(gpu, 0) / 1024,
    "pcie_rx_mib_s": lambda nvml, gpu: nvml.nvmlDeviceGetPcieThroughput(gpu, 1) / 1024,
}


class Gpu:
    """One GPU. latest: its newest readings. on_it: pid -> MiB (None: not reported) of the processes that it has now."""

    def __init__(self, nvml: Any, index: int) -> None:
        self.index = index
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self._refused: dict[str, str] = {}
        self.still = {name: value for name, read in STILL.items() if (value := self._read(name, read)) is not None}
        self.gpm = Gpm(nvml, self._handle, bool(self.still.get("mig")))
        self.means = Means()
        self.latest: dict[str, float] = {}
        self.first: dict[str, float] = {}
        self.on_it: dict[int, float | None] = {}
        self.rates: dict[int, float] = {}
        self._first_memory: dict[int, float] = {}
        self._seen: dict[int, dict[str, Any]] = {}
        self._reasons: Counter[int] = Counter()
        self._reasons_read = 0
        self._before = self._counters()
        self._since = time.time_ns() // 1000
        self._next_pcie = self._next_rare = 0.0

    def fast(self) -> dict[str, float]:
        """Each round: NVML's utilisation."""
        values: dict[str, float] = {}
        if (used := self._read("utilisation", lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu))) is not None:
            values["busy"], values["memory_busy"] = used.gpu, used.memory
        return self.keep(values)

    def power(self) -> dict[str, float]:
        watts = self._read("watts", lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000)
        return self.keep({} if watts is None else {"watts": watts})

    def count_reasons(self) -> None:
        """Why the clocks are not higher now."""
        reasons = self._read("reasons", lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
        if reasons is None:  # drivers before R535
            reasons = self._read("throttle reasons", lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))
        if reasons is not None:
            self._reasons_read += 1
            self._reasons.update(1 << bit for bit in range(int(reasons).bit_length()) if reasons >> bit & 1)

    def metrics(self) -> dict[str, float]:
        """What GPM counted since the last call."""
        return self.keep(self.gpm.read())

    def slow(self, now: float) -> dict[str, float]:
        rows = {**SLOW, **RARE} if now >= self._next_rare else SLOW
        if now >= self._next_rare:
            self._next_rare = now + RARE_SECONDS
        values = {name: value for name, read in rows.items() if (value := self._read(name, read)) is not None}
        if not self.gpm.works and now >= self._next_pcie:
            self._next_pcie = now + PCIE_EVERY_SECONDS
            values |= {name: value for name, read in PCIE.items() if (value := self._read(name, read)) is not None}
        return self.keep(values)

    def processes(self) -> None:
        """Who is on it, with how much memory and which part of the time of its multiprocessors."""
        found = self._read("processes", lambda nvml, gpu: nvml.nvmlDeviceGetComputeRunningProcesses(gpu))
        self.on_it = {entry.pid: entry.usedGpuMemory and entry.usedGpuMemory / MIB for entry in found or ()}
        self.rates = self._utilisation()
        for pid in self.on_it:
            if pid not in self._seen and len(self._seen) < MOST_PROCESSES:
                self._seen[pid] = {"first_mib": self.on_it[pid], "sm": Means(), "most_mib": 0.0}
            if row := self._seen.get(pid):
                row["last_mib"] = self.on_it[pid]
                row["most_mib"] = max(row["most_mib"], self.on_it[pid] or 0.0)
                row["sm"].add({"sm": self.rates.get(pid, 0.0)})

    def _utilisation(self) -> dict[int, float]:
        """pid -> the mean percentage of its samples since the last call."""
        since, self._since = self._since, time.time_ns() // 1000
        samples = self._read("process utilisation", lambda nvml, gpu: nvml.nvmlDeviceGetProcessUtilization(gpu, since))
        every: dict[int, list[int]] = {}
        for sample in samples or ():
            if sample.pid and sample.smUtil <= 100:
                every.setdefault(sample.pid, []).append(sample.smUtil)
        return {pid: sum(values) / len(values) for pid, values in every.items()}

    def as_value(self) -> dict[str, Any]:
        after = self._counters()
        shares = {f"{bit:#x}": round(count / self._reasons_read, 3) for bit, count in sorted(self._reasons.items())}
        rows = {str(pid): {**row, "sm": row["sm"]["sm"].as_value()["mean"]} for pid, row in self._seen.items()}
        return {
            **self.still,
            "gpm": self.gpm.why_not or "works",
            "blur": round(self.gpm.longest, 2),
            "readings": self.means.as_value(),
            "reasons": shares,
            "counted": {name: after[name] - before for name, before in self._before.items() if name in after},
            "processes": rows,
            "refused": dict(self._refused),
        }

    def keep(self, values: dict[str, float]) -> dict[str, float]:
        """Counts readings, also those of another source."""
        self.latest |= values
        self.first = {**values, **self.first}
        self.means.add(values)
        return values

    def _counters(self) -> dict[str, int]:
        return {name: value for name, read in COUNTERS.items() if (value := self._read(name, read)) is not None}

    def _read(self, name: str, read: Callable[[Any, Any], Any]) -> Any:
        """The answer; None if NVML refuses it, for good where this GPU or driver does not have it."""
        if name in self._refused:
            return None
        try:
            return read(self._nvml, self._handle)
        except self._nvml.NVMLError as refusal:
            if refusal.value in (1, 3, 4, 13):  # uninitialised, not supported, no permission, unknown function
                self._refused[name] = str(refusal)
        except (KeyError, AttributeError, OverflowError) as refusal:
            self._refused[name] = f"{type(refusal).__name__}: {refusal}"
        return None


def opened() -> tuple[Any, list[Gpu], str]:
    """NVML, its GPUs, and why there are none."""
    try:
        import pynvml

        pynvml.nvmlInit()
        number = pynvml.nvmlDeviceGetCount()
        return pynvml, [Gpu(pynvml, index) for index in range(number)], "" if number else "NVML finds no GPU"
    except ImportError:
        return None, [], "nvidia-ml-py is not installed"
    except Exception as failure:
        return None, [], f"NVML does not answer: {failure}"
