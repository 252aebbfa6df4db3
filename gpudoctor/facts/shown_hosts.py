"""What a text shows of the machine around the GPU: processors, disks, displays, package sources."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any


class ShownHosts:
    @abstractmethod
    def _value(self, name: str, otherwise: Any) -> Any: ...

    @cached_property
    def waiting(self) -> float:
        """The percentage of their time that the CPUs wait for disks; 0 if the text does not show it."""
        return float(self._value("shown-waiting", {"share": 0.0})["share"])

    @cached_property
    def busy_disk(self) -> tuple[str, float]:
        """The busiest disk and the percentage of the time in which it works, from iostat -x."""
        disk = self._value("shown-busy-disk", {"name": "", "percent": 0.0})
        return disk["name"], float(disk["percent"])

    @cached_property
    def blocked(self) -> tuple[str, ...]:
        """The pids of programs that wait in the kernel, from top and ps."""
        return tuple(self._value("shown-blocked", ()))

    @cached_property
    def hot(self) -> Mapping[str, float]:
        """Index of a GPU -> the share of samples in which heat lowered its clocks, from nvidia-smi dmon."""
        return dict(self._value("shown-hot", {}))

    @cached_property
    def policy(self) -> Mapping[str, Mapping[str, Any]]:
        """Package -> installed, candidate, and offered: version -> hosts, from apt policy."""
        return dict(self._value("shown-policy", {}))

    @cached_property
    def snaps(self) -> tuple[str, ...]:
        return tuple(self._value("shown-snaps", {}))

    @cached_property
    def cpu(self) -> Mapping[str, Any]:
        """model; flags; lacks: instruction sets that grep did not find."""
        return dict(self._value("shown-cpu", {}))

    @cached_property
    def providers(self) -> Mapping[str, str]:
        """Number -> name of the GPUs that X knows. The first draws the screen."""
        return dict(self._value("shown-providers", {}))

    @cached_property
    def cpus(self) -> int:
        """The number that nproc prints; 0 if the text does not show it."""
        return int(self._value("shown-cpus", 0))
