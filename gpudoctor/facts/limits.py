"""The limits of this process: resource limits, shared and temporary space, CPUs, memory of its cgroup."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Skip, Unavailable

Limit = tuple[int | None, int | None]  # soft and hard; None is unlimited

TITLES = {  # of /proc/self/limits
    "memlock": "Max locked memory",
    "open_files": "Max open files",
    "processes": "Max processes",
    "stack": "Max stack size",
}
STALE_SECONDS = 3600  # NCCL unlinks a segment once both sides have opened it
UNLIMITED_BYTES = 1 << 60  # cgroup version 1 writes "unlimited" as the highest number of whole pages


class Folder(NamedTuple):
    """TMPDIR, or /tmp, where compilers and JITs write files and load them from; or HOME. None: not shown in a text.

    free_files: inodes; None without a limit, and in snapshots of older versions.
    """

    free_bytes: int
    writable: bool | None
    noexec: bool | None
    free_files: int | None = None


@dataclass(frozen=True)
class NcclSegment(Guarded):
    """A file /dev/shm/nccl-*; it is not known whether a process still uses it."""

    name: str
    age_seconds: int
    size_bytes: int
    uid: int


class Limits(Guarded):
    """The limits and free space of this process."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def memlock(self) -> Limit:
        """Bytes."""
        return self._limit("memlock")

    @cached_property
    def address_space(self) -> Limit:
        """Bytes."""
        return self.named("Max address space")

    def named(self, title: str) -> Limit:
        """A row of /proc/self/limits, in its unit."""
        return limit_of(self._replies.value("file:/proc/self/limits"), title)

    @cached_property
    def open_files(self) -> Limit:
        return self._limit("open_files")

    @cached_property
    def processes(self) -> Limit:
        return self._limit("processes")

    @cached_property
    def stack(self) -> Limit:
        """Bytes."""
        return self._limit("stack")

    def _limit(self, name: str) -> Limit:
        """A text can show only some of them."""
        asked = self._replies.starting_with("limits").get("limits")
        if asked and asked.status == "ok" and name in asked.value:
            soft, hard = asked.value[name]
            return soft, hard
        return limit_of(self._replies.value("file:/proc/self/limits"), TITLES[name])

    @property
    def shm_bytes(self) -> int:
        return int(self._replies.value("shm")["bytes"])

    @property
    def shm_free_bytes(self) -> int:
        return int(self._replies.value("shm")["free_bytes"])

    @cached_property
    def tmp(self) -> Folder:
        return _folder(self._replies.value("tmp"))

    @cached_property
    def home(self) -> Folder:
        return _folder(self._replies.value("home"))

    @cached_property
    def cpus(self) -> tuple[int, ...]:
        """The CPUs that this process may run on."""
        return tuple(self._replies.value("cpus")["affinity"])

    @property
    def cpu_count(self) -> int:
        """The CPUs of the machine."""
        return int(self._replies.value("cpus")["count"])

    @cached_property
    def cgroup_memory_bytes(self) -> int | None:
        """The tightest memory limit of this process's cgroups; None if unlimited."""
        return tightest_bytes(self._replies.value("cgroup-limits").get("memory", ()))

    @cached_property
    def cgroup_cpus(self) -> float | None:
        """The tightest CPU quota in CPUs; None if unlimited."""
        return tightest_cpus(self._replies.value("cgroup-limits").get("cpu", ()))

    @cached_property
    def cgroup_tasks(self) -> tuple[int, int] | None:
        """How many processes and threads the tightest of this process's cgroups allows, and how many run; None if unlimited."""
        asked = self._replies.value("cgroup-limits")
        if "pids" not in asked:
            raise Skip("pids.max was not asked")
        rows = [text.split() for text in asked["pids"]]
        limits = [(int(most), int(now)) for most, now in rows if most != "max"]
        return min(limits, key=lambda limit: limit[0] - limit[1], default=None)

    @cached_property
    def refused_processes(self) -> str:
        """The words with which the kernel refused a process to gpudoctor itself; "" if it did not."""
        refused = self._replies.starting_with("refused-processes").get("refused-processes")
        return str(refused.value) if refused else ""

    @cached_property
    def nccl_segments(self) -> tuple[NcclSegment, ...]:
        return tuple(map(_segment, self._replies.value("nccl-segments")))

    @cached_property
    def stale_nccl_segments(self) -> tuple[str, ...]:
        """Segments so old that the job which made them has most likely died."""
        return tuple(segment.name for segment in self.nccl_segments if segment.age_seconds > STALE_SECONDS)


def _folder(space: Mapping[str, Any]) -> Folder:
    return Folder(space["free_bytes"], space["writable"], space["noexec"], space.get("free_files"))


def limit_of(text: str, title: str) -> Limit:
    """One row of /proc/self/limits."""
    row = re.search(rf"(?m)^{title} +(\S+) +(\S+)", text)
    if not row:
        raise Unavailable(f"/proc/self/limits has no line {title!r}")
    return _amount(row[1]), _amount(row[2])


def _amount(word: str) -> int | None:
    return None if word == "unlimited" else int(word)


def tightest_bytes(texts: Sequence[str]) -> int | None:
    """The smallest of several memory.max or memory.limit_in_bytes."""
    amounts = [int(text) for text in texts if text != "max"]
    return min((amount for amount in amounts if amount < UNLIMITED_BYTES), default=None)


def tightest_cpus(texts: Sequence[str]) -> float | None:
    """The smallest quota of several cpu.max, each "QUOTA PERIOD"; "max" and -1 mean no quota."""
    quotas = [text.split() for text in texts]
    return min((int(quota) / int(period) for quota, period in quotas if quota not in ("max", "-1")), default=None)


def _segment(raw: dict[str, Any]) -> NcclSegment:
    return NcclSegment(raw["name"], raw["age_seconds"], raw["bytes"], raw["uid"])
