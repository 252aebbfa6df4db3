"""What the GPUs do, by NVML: utilisation over a while, and whose work it is. Asked in a child, because NVML itself can hang."""

from __future__ import annotations

import contextlib
import select
import time
from typing import Any

from gpudoctor.worker.child import Channel, talking

MOST_SECONDS = 8.0
EVERY_SECONDS = 0.25


class Watching:
    """Samples in the background until `ended`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._child, self._lines = talking(lambda channel: _sample(channel, seconds))

    def ended(self) -> dict[str, Any]:
        """{"gpus": [...]} or {"failed": why}."""
        end = time.monotonic() + self._seconds + MOST_SECONDS
        found: dict[str, Any] = {"failed": "NVML did not answer in time"}
        while not self._lines.ended and time.monotonic() < end:
            if select.select([self._lines], [], [], max(0.0, end - time.monotonic()))[0]:
                for message in self._lines.read():
                    found = message
        self.close()
        return found

    def close(self) -> None:
        self._child.killed()
        with contextlib.suppress(OSError):
            self._lines.close()


def _sample(channel: Channel, seconds: float) -> None:
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        gpus = [_about(pynvml, index, handle) for index, handle in enumerate(handles)]
        end = time.monotonic() + seconds
        while True:
            for gpu, handle in zip(gpus, handles, strict=True):
                with contextlib.suppress(pynvml.NVMLError):
                    used = pynvml.nvmlDeviceGetUtilizationRates(handle)
                    gpu["busy"].append(used.gpu)
                    gpu["memory_busy"].append(used.memory)
                with contextlib.suppress(pynvml.NVMLError):
                    gpu["watts"].append(round(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000, 1))
            if time.monotonic() >= end:
                break
            time.sleep(EVERY_SECONDS)
        channel.send(gpus=gpus)
    except (pynvml.NVMLError, OSError) as failure:
        channel.send(failed=str(failure)[:200])


def _about(nvml: Any, index: int, handle: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"index": index, "uuid": "", "name": "", "busy": [], "memory_busy": [], "watts": [], "processes": []}
    with contextlib.suppress(nvml.NVMLError):
        found["uuid"] = _text(nvml.nvmlDeviceGetUUID(handle))
        found["name"] = _text(nvml.nvmlDeviceGetName(handle))
    with contextlib.suppress(nvml.NVMLError):
        for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)[:64]:
            found["processes"].append({"pid": one.pid, "mib": (one.usedGpuMemory or 0) >> 20})
    with contextlib.suppress(nvml.NVMLError):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        found |= {"used_mib": memory.used >> 20, "total_mib": memory.total >> 20}
    return found


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
