"""The processes of a job: those below its roots, from one look at all of /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

LAUNCHERS = ("torchrun", "accelerate", "mpirun", "mpiexec", "srun", "deepspeed", "orted", "prterun", "bash", "sh", "dash", "sudo")
NO_LOADERS = ("compile_worker", "resource_tracker", "semaphore_tracker", "forkserver", "gpudoctor")


PF_KTHREAD = 0x00200000


class Stat(NamedTuple):
    """Of one process or thread, from its stat. ticks: of CPU time in all."""

    pid: int
    name: str
    state: str
    parent: int
    minor_faults: int
    major_faults: int
    ticks: int
    threads: int
    began: int
    rss_pages: int


def stat_of(path: str) -> Stat | None:
    """None if it has ended."""
    text = read(path)
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    if len(fields) < 22:
        return None
    pid, _, name = head.partition(" (")
    numbers = [int(fields[at]) for at in (1, 7, 9, 11, 12, 17, 19, 21)]
    parent, minor, major, user, system, threads, began, pages = numbers
    return Stat(int(pid), name, fields[0], parent, minor, major, user + system, threads, began, pages)


def is_of_kernel(pid: int) -> bool:
    """Whether it is a thread of the kernel, not a program."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return len(fields) > 6 and bool(int(fields[6]) & PF_KTHREAD)


def read(path: str, most: int = 1 << 16) -> str:
    """A file of /proc; "" if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, most).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def every(known: Mapping[int, Stat] | None = None, wanted: Iterable[int] = ()) -> dict[int, Stat]:
    """All processes of this machine that are visible from here.

    known: from an earlier look; of these only the wanted are read again, as thousands of processes cost a good part of a second.
    """
    again = set(wanted)
    old = {pid: stat for pid, stat in (known or {}).items() if pid not in again}
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208 (thousands at a time)
            if name[0].isdigit() and (stat := old.get(int(name)) or stat_of(f"/proc/{name}/stat")):
                found[stat.pid] = stat
    return found


def below(roots: Iterable[int], all: dict[int, Stat]) -> list[int]:
    """The roots that run, and what they started, parents first."""
    children: dict[int, list[int]] = {}
    for stat in all.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    found: dict[int, None] = {}
    waiting = [root for root in roots if root in all]
    while waiting:
        pid = waiting.pop(0)
        if pid not in found:
            found[pid] = None
            waiting += sorted(children.get(pid, ()))
    return list(found)


def command_line(pid: int) -> str:
    return " ".join(read(f"/proc/{pid}/cmdline", 4096).split("\0")).strip()


def role(stat: Stat, line: str, has_gpu: bool, parent_line: str) -> str:
    """gpu, launcher, loader (a worker process of a program that uses a GPU), or helper."""
    if has_gpu:
        return "gpu"
    if stat.name in LAUNCHERS or any(f"/{name}" in line[:200] or line.startswith(f"{name} ") for name in LAUNCHERS[:5]):
        return "launcher"
    if any(word in line for word in NO_LOADERS):
        return "helper"
    is_copy = bool(line) and line == parent_line
    return "loader" if is_copy or stat.name.startswith("pt_data_worker") or "multiprocessing" in line else "helper"
