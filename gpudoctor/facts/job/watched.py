"""What `gpudoctor watch` saw of a program from outside: its GPUs, its processes and the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.job.watched_parts import Gpu, Process
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Skip

QUESTION = "job-watch"
NOT_WATCHED = "no program was watched (gpudoctor watch)"


@dataclass(frozen=True)
class Timeline(Guarded):
    """Means over equal stretches of time; None where nothing was read."""

    every: float
    raw: Mapping[str, Sequence[float | None]]

    def column(self, name: str) -> list[tuple[float, float]]:
        """Time of the middle of each stretch, and the value there."""
        return [((at + 0.5) * self.every, float(value)) for at, value in enumerate(self.raw.get(name, ())) if value is not None]


class Watched(Guarded):
    """The whole. kind: command, pid, container, job or gpus."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw

    @property
    def kind(self) -> str:
        return str(self.raw["target"]["kind"])

    @property
    def name(self) -> str:
        return str(self.raw["target"]["name"])

    @property
    def ended(self) -> str:
        return str(self.raw["ended"])

    @property
    def seconds(self) -> float:
        return float(self.raw["seconds"])

    @property
    def own_cores(self) -> float:
        return float(self.raw["own"]["cores"])

    @property
    def own_mib(self) -> float:
        return float(self.raw["own"]["rss_mib"])

    @property
    def why_no_gpu(self) -> str:
        return str(self.raw["no_gpu"])

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(Gpu(int(index), row) for index, row in self.raw["gpus"].items())

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        return tuple(Process(int(pid), row) for pid, row in self.raw["processes"].items())

    @cached_property
    def pids(self) -> frozenset[int]:
        """All that belonged to the job."""
        return frozenset(map(int, self.raw["pids"]))

    @cached_property
    def used(self) -> dict[int, tuple[int, ...]]:
        """Index of each GPU that the job used -> the pids that did."""
        return {int(index): tuple(map(int, pids)) for index, pids in self.raw["used"].items()}

    @property
    def is_listed(self) -> bool:
        """Whether NVML listed processes: in some containers it lists none."""
        return bool(self.raw["listed"])

    @property
    def lists_processes(self) -> bool:
        """Whether NVML answered the question for processes: not if it refuses, or where the process ids are not visible."""
        return self.is_listed or (all("processes" not in gpu.raw["refused"] for gpu in self.gpus) and not self.raw["hidden_pids"])

    @property
    def reached_memory_limit(self) -> int:
        """How often the control group reached its memory limit meanwhile."""
        return int((self.raw["cgroup"] or {}).get("reached_limit") or 0)

    @cached_property
    def timeline(self) -> Timeline:
        return Timeline(float(self.raw["timeline"]["every"]), self.raw["timeline"]["columns"])

    def host(self, name: str) -> float | None:
        """The mean of a reading of the host: cpu_used, iowait, stalled_io, disk_busy (shares), read_mib_s."""
        row = self.raw["host"]["readings"].get(name)
        return None if row is None else float(row["mean"])

    @property
    def memory_mib(self) -> tuple[float, float] | None:
        """Of the host: all, and what was available at the end."""
        host = self.raw["host"]
        if host["memory_mib"] is None or host["available_mib"] is None:
            return None
        return float(host["memory_mib"]), float(host["available_mib"])

    @property
    def swap_mib_s(self) -> float:
        return float(sum(self.raw["host"]["swap_mib_s"].values()))

    @property
    def cpus(self) -> float:
        """How many CPUs the job may use, by its control group or as the host has."""
        group = self.raw["cgroup"] or {}
        return float(group.get("cores") or self.raw["host"]["cpus"] or 1)

    @property
    def throttled_seconds(self) -> float:
        """How long the control group's quota of CPU time held the job back."""
        return float((self.raw["cgroup"] or {}).get("throttled_seconds") or 0.0)

    @property
    def group_memory(self) -> tuple[float, float] | None:
        """Memory of the control group and its limit in MiB; None without a limit."""
        group = self.raw["cgroup"] or {}
        if not group.get("most_memory_mib") or group.get("memory_mib") is None:
            return None
        return float(group["memory_mib"]), float(group["most_memory_mib"])

    @property
    def disks(self) -> dict[str, dict[str, float]]:
        return dict(self.raw["host"]["disks"])

    @property
    def network_shares(self) -> dict[str, float]:
        """Network interface or RDMA port -> the share of its speed that was used in its busier direction, where that is known."""
        rows = self.raw["host"]["network"].items()
        return {str(name): max(row["rx_mib_s"], row["tx_mib_s"]) / row["most_mib_s"] for name, row in rows if row["most_mib_s"]}

    @property
    def overview(self) -> dict[str, Any]:
        """For reports: what was watched, for how long, and a row for each GPU."""
        return {
            "target": dict(self.raw["target"]),
            "seconds": self.seconds,
            "ended": self.ended,
            "exit_code": self.raw.get("exit_code"),
            "unreadable": sum(not process.raw["readable"] for process in self.processes),
            "first_kernel": self.first_kernel,
            "own_cores": self.own_cores,
            "own_mib": self.own_mib,
            "every": self.timeline.every,
            "gpus": [_of_gpu(self, gpu) for gpu in self.gpus],
            "no_gpu": str(self.raw.get("no_gpu") or ""),
        }

    @property
    def first_kernel(self) -> float | None:
        """Seconds until a command ran its first kernel; None if it ran none, or for what was running before."""
        if self.kind != "command":
            return None
        names = (f"gpu{index}.{name}" for index in self.used for name in ("graphics", "busy"))
        found = [at for name in names for at, value in self.timeline.column(name) if value > 0]
        return round(max(0.0, min(found) - self.timeline.every / 2), 1) if found else None

    @property
    def stacks(self) -> tuple[str, ...]:
        """Functions of the busiest process, the outermost last; empty if they were not asked for."""
        return tuple(map(str, self.raw.get("stacks") or ()))


def _of_gpu(watched: Watched, gpu: Gpu) -> dict[str, Any]:
    """What a row of the table shows, and the curves of the timeline."""
    names = ("busy", "graphics", "sm", "tensor", "dram", "watts", "celsius", "memory_used_mib")
    known = {process.pid: process.name for process in watched.processes}
    curves = {name: watched.timeline.raw.get(f"gpu{gpu.index}.{name}") for name in (*names[:5], "memory_used_mib", "main_thread")}
    return {
        "index": gpu.index,
        "name": gpu.name,
        "memory_mib": gpu.raw.get("memory_mib"),
        **{name: value for name in names if (value := gpu.mean(name)) is not None},
        "users": [
            {
                "pid": process.pid,
                "name": known.get(process.pid),
                "mib": process.mib,
                "is_of_job": process.pid in watched.pids,
                "sm": round(process.sm, 3),
            }
            for process in gpu.processes
        ],
        "timeline": {name: list(curve) for name, curve in curves.items() if curve},
    }


def watched_of(replies: Replies) -> Watched:
    """Skip if nothing was watched."""
    if not replies.starting_with(QUESTION).get(QUESTION):
        raise Skip(NOT_WATCHED)
    value: dict[str, Any] = replies.value(QUESTION)
    return Watched(value)
