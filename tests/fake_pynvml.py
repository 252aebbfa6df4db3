"""NVML without a GPU: clocks that tell the GPU, power that rises by the second. Travels in place of pynvml (Python 3.8)."""

from __future__ import annotations

import os
import time
from typing import Any

COUNTED: list[int] = []


class Process:
    pid = 1
    usedGpuMemory = 3 << 20  # noqa: N815


def nvmlInit() -> None:  # noqa: N802
    pass


def nvmlDeviceGetHandleByIndex(index: int) -> int:  # noqa: N802
    return index


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:  # noqa: N802
    return 1000 * kind + handle


def nvmlDeviceGetPowerUsage(handle: int) -> int:  # noqa: N802
    return int(time.monotonic() * 1000)


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:  # noqa: N802
    raise OSError("not supported")


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: int) -> int:  # noqa: N802
    return 5


def nvmlDeviceGetPcieReplayCounter(handle: int) -> int:  # noqa: N802
    COUNTED.append(handle)
    return COUNTED.count(handle)


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[Any]:  # noqa: N802
    ours = Process()
    ours.pid = os.getpid()
    return [Process(), ours]
