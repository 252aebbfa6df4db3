"""NVML without a GPU: clocks that tell the GPU, power that rises with each reading. Travels in place of pynvml (Python 3.8)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

COUNTED: list[int] = []


def readings(gpu: int, more: bytes = b"") -> int:
    """How often a GPU's power was read, which is the time here; `more` for one more."""
    with Path(os.environ["GPUDOCTOR_TEST_RUN"], f"readings-{gpu}").open("ab") as file:
        file.write(more)
        return file.tell()


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
    return 1000 * readings(handle, b".")


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
