"""The process that watches: each second it reads counters, events and the kernel log, and sends what is new."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Dict, List

from gpudoctor.worker.child import Channel
from gpudoctor.worker.measuring.watching.counters import Counters
from gpudoctor.worker.measuring.watching.events import Events
from gpudoctor.worker.measuring.watching.kernel_messages import KernelMessages

EVERY_SECONDS = 1.0
MOST_OF_THE_TIME = 0.1  # that it may spend in NVML: many GPUs with many links are read less often


class Observer:
    """gauges: GPU -> readings of this second that belong to each sample."""

    def __init__(self, channel: Channel, nvml: Any, handles: Dict[int, Any]) -> None:
        self.gauges: Dict[int, Dict[str, float]] = {gpu: {} for gpu in handles}
        self._channel = channel
        self._messages = KernelMessages()
        self._events = Events(nvml, handles)
        self._counters = {gpu: Counters(nvml, handle) for gpu, handle in handles.items()}
        self._last: Dict[int, Dict[str, float]] = {gpu: {} for gpu in handles}
        self._next = 0.0
        channel.send(
            watching={"source": self._messages.source, "why": self._messages.why},
            events={str(gpu): why for gpu, why in self._events.why.items()},
            slots=dict(_slots(nvml, handles)),
        )
        self._tell()

    def look(self, last: bool = False) -> None:
        """Reads everything if it is time. last: in any case."""
        began = time.monotonic()
        if began < self._next and not last:
            return
        lines = self._messages.read()
        if lines:
            self._channel.send(at=began, lines=lines)
        for gpu, counters in self._counters.items():
            at = time.monotonic()
            for code in self._events.xids(gpu):
                self._channel.send(gpu=gpu, at=at, xid=code)
            self._send(gpu, at, counters.read())
        spent = time.monotonic() - began
        self._channel.send(at=began, round_seconds=spent)
        self._next = began + max(EVERY_SECONDS, spent / MOST_OF_THE_TIME)

    def close(self) -> None:
        self._messages.close()
        self._tell()  # how many calls it was in the end

    def _tell(self) -> None:
        for gpu, counters in self._counters.items():
            self._channel.send(gpu=gpu, not_watched=counters.not_watched, calls=counters.calls, names=counters.names)

    def _send(self, gpu: int, at: float, found: Dict[str, float]) -> None:
        """Only what changed."""
        if "memory_celsius" in found:
            self.gauges[gpu]["memory_celsius"] = found.pop("memory_celsius")
        known = self._last[gpu]
        changed = {name: value for name, value in found.items() if known.get(name) != value}
        if changed:
            known.update(changed)
            self._channel.send(gpu=gpu, at=at, counts=changed)


def _slots(nvml: Any, handles: Dict[int, Any]) -> List[Any]:
    """Pairs of a PCI address without the function, as `0000:19:00`, and the GPU."""
    found = []
    for gpu, handle in handles.items():
        with contextlib.suppress(Exception):
            pci = nvml.nvmlDeviceGetPciInfo(handle)
            found.append(("%04x:%02x:%02x" % (pci.domain, pci.bus, pci.device), gpu))
    return found
