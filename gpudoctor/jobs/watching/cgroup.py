"""The control group (version 2) of a job: its limits, how long it was held back, and its memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpudoctor.jobs.watching.tree import read

ROOT = "/sys/fs/cgroup"


class Cgroup:
    """path: its folder; "" if it cannot be read."""

    def __init__(self, pid: int) -> None:
        self.path = folder_of(pid)
        self._first = self._stat()

    def as_value(self) -> dict[str, Any] | None:
        if not self.path:
            return None
        last = self._stat()
        since = {name: last[name] - self._first.get(name, 0) for name in last}
        return {
            "cores": _cores(self._read("cpu.max")),
            "throttled_seconds": round(since.get("throttled_usec", 0) / 1e6, 3),
            "memory_mib": _mib(self._read("memory.current")),
            "most_memory_mib": _mib(self._read("memory.max")),
            "oom_kills": since.get("oom_kill", 0),
            "reached_limit": since.get("max", 0),
            "stalled": {
                kind: round(since.get(f"stalled_{kind}", 0) / 1e6, 3)
                for kind in ("cpu", "io", "memory")
                if f"stalled_{kind}" in since
            },
        }

    def _stat(self) -> dict[str, int]:
        found = {}
        for file in ("cpu.stat", "memory.events"):
            for line in self._read(file).splitlines():
                name, _, value = line.partition(" ")
                if value.strip().isdigit():
                    found[name] = int(value)
        for kind in ("cpu", "io", "memory"):
            total = self._read(f"{kind}.pressure").partition("\n")[0].rpartition("total=")[2]
            if total.isdigit():
                found[f"stalled_{kind}"] = int(total)
        return found

    def _read(self, name: str) -> str:
        return read(f"{self.path}/{name}", 8192) if self.path else ""


def folder_of(pid: int) -> str:
    """Of a process; "" without one of version 2."""
    for line in read(f"/proc/{pid}/cgroup", 4096).splitlines():
        if line.startswith("0::"):
            folder = ROOT + line[3:].strip()
            return folder.rstrip("/") if Path(folder, "cpu.stat").exists() else ROOT
    return ""


def _cores(text: str) -> float | None:
    """How many CPUs the group may use; None without a limit."""
    quota, _, period = text.partition(" ")
    return round(int(quota) / int(period), 2) if quota.isdigit() and period.strip().isdigit() else None


def _mib(text: str) -> float | None:
    return round(int(text) / (1 << 20), 1) if text.strip().isdigit() else None
