"""Clocks, power and temperatures of a GPU over a whole run, in about the same number of points for any duration."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

POINTS = 160
FINEST_SECONDS = 0.25
DIGITS = {"sm_mhz": 0, "watts": 1, "celsius": 1, "memory_celsius": 1}


class History:
    """Means of the samples in equal time intervals; the interval doubles as soon as there are more than POINTS."""

    def __init__(self, began: float) -> None:
        """began: in seconds of time.monotonic, like all times."""
        self.every = FINEST_SECONDS
        self._began = began
        self._sums: Dict[str, Dict[int, Tuple[float, int]]] = {name: {} for name in DIGITS}  # by interval: sum, number of samples
        self._ran: Dict[str, List[float]] = {}

    def keep(self, at: float, sample: Dict[str, Any]) -> None:
        stretch = max(0, int((at - self._began) / self.every))
        while stretch >= POINTS:
            self._double()
            stretch //= 2
        for name, sums in self._sums.items():
            if name in sample:
                total, count = sums.get(stretch, (0.0, 0))
                sums[stretch] = total + sample[name], count + 1

    def ran(self, workload: str, began: float, ended: float) -> None:
        self._ran[workload] = [round(began - self._began, 2), round(ended - self._began, 2)]

    def as_value(self) -> Optional[Dict[str, Any]]:
        """{"every_seconds", a list for each reading (None without samples), "workloads": name -> [began, ended]}; None without
        any samples."""
        last = max((stretch for sums in self._sums.values() for stretch in sums), default=-1)
        if last < 0:
            return None
        readings = {name: self._means(name, last) for name, sums in self._sums.items() if sums}
        return dict(readings, every_seconds=self.every, workloads=self._ran)

    def _means(self, name: str, last: int) -> List[Optional[float]]:
        sums = self._sums[name]
        return [round(sums[at][0] / sums[at][1], DIGITS[name]) if at in sums else None for at in range(last + 1)]

    def _double(self) -> None:
        self.every *= 2
        for name, sums in self._sums.items():
            merged: Dict[int, Tuple[float, int]] = {}
            for stretch, (total, count) in sums.items():
                known = merged.get(stretch // 2, (0.0, 0))
                merged[stretch // 2] = known[0] + total, known[1] + count
            self._sums[name] = merged
