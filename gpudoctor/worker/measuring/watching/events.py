"""Xids as NVML reports them: they need no kernel log and no root."""

from __future__ import annotations

from typing import Any, Dict, List

MOST_EVENTS = 64  # in one round
XID_CRITICAL = 8  # nvmlEventTypeXidCriticalError


class Events:
    """One set of events for each GPU, so that an event needs no other sign of its GPU. why: GPU -> why NVML refused."""

    def __init__(self, nvml: Any, handles: Dict[int, Any]) -> None:
        self.why: Dict[int, str] = {}
        self._nvml = nvml
        self._sets: Dict[int, Any] = {}
        for gpu, handle in handles.items():
            try:
                own = nvml.nvmlEventSetCreate()
                nvml.nvmlDeviceRegisterEvents(handle, XID_CRITICAL, own)
                self._sets[gpu] = own
            except Exception as failure:
                self.why[gpu] = str(failure) or type(failure).__name__

    def xids(self, gpu: int) -> List[int]:
        """The codes since the last call."""
        found: List[int] = []
        while gpu in self._sets and len(found) < MOST_EVENTS:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._sets[gpu], 0)
            except Exception:  # NVML_ERROR_TIMEOUT: none is left
                break
            if event.eventType & XID_CRITICAL:
                found.append(int(event.eventData))
        return found
