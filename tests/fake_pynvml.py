"""NVML without a GPU: clocks that tell the GPU, power that rises with each reading. Travels in place of pynvml (Python 3.8)."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
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


LINKS = 2
FIELDS = {82: 61, 3: 0, 4: 0, 94: 7}  # memory temperature, ECC errors, replays
OF_LINKS = (161, 162, 163)
NOT_SUPPORTED = 3


def nvmlDeviceGetFieldValues(handle: int, fields: list[tuple[int, int]]) -> list[Any]:  # noqa: N802
    """Replays of link 1 of GPU 0 grow with each reading."""
    return [_field(number, readings(handle) * (number == 161 and (handle, link) == (0, 1))) for number, link in fields]


def _field(number: int, grown: int) -> Any:
    is_known = number in FIELDS or number in OF_LINKS
    value = SimpleNamespace(ullVal=FIELDS.get(number, grown))
    return SimpleNamespace(nvmlReturn=0 if is_known else NOT_SUPPORTED, valueType=3, value=value)


def nvmlDeviceGetNvLinkState(handle: int, link: int) -> int:  # noqa: N802
    if link >= LINKS:
        raise OSError("no such link")
    return 1


def nvmlEventSetCreate() -> list[int]:  # noqa: N802
    return []


def nvmlDeviceRegisterEvents(handle: int, types: int, events: list[int]) -> None:  # noqa: N802
    events.append(handle)


def nvmlEventSetWait_v2(events: list[int], milliseconds: int) -> Any:  # noqa: N802
    """Once all that was started works, GPU 1 falls off the bus."""
    if events == [1] and Path(os.environ["GPUDOCTOR_TEST_RUN"], "falls-off").exists():
        events.clear()
        return SimpleNamespace(eventType=8, eventData=79)
    raise OSError("timeout")
