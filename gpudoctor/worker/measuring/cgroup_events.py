"""What the kernel counts in this process's cgroup: processes killed for lack of memory, and forks that a limit refused."""

from __future__ import annotations

import os
from typing import Dict, Iterator, Tuple

ROOT = "/sys/fs/cgroup"
# controller, file, counter -> what it means
EVENTS = {
    ("memory", "memory.events", "oom_kill"): "the kernel killed a process of this cgroup for lack of memory (oom_kill in %s)",
    (
        "memory",
        "memory.oom_control",
        "oom_kill",
    ): "the kernel killed a process of this cgroup for lack of memory (oom_kill in %s)",
    ("pids", "pids.events", "max"): "the limit on processes and threads of this cgroup was reached (%s)",
}
Counters = Dict[Tuple[str, str], Tuple[int, str]]  # file and counter -> count and what it means


def counters(root: str = ROOT, own: str = "/proc/self/cgroup") -> Counters:
    """The counters of this process's cgroups; those that cannot be read are missing."""
    found: Counters = {}
    folders = dict(_folders(root, own))
    for (controller, name, counter), meaning in EVENTS.items():
        for folder in filter(None, (folders.get(controller), folders.get(""), root)):
            path = os.path.join(folder, name)
            for line in _lines(path):
                word, _, count = line.partition(" ")
                if word == counter and count.strip().isdigit():
                    found[path, counter] = (int(count), meaning % path)
    return found


def since(before: Counters) -> str:
    """What has happened since then, as the end of a sentence; "" for nothing."""
    now = counters()
    told = [meaning for key, (count, meaning) in now.items() if count > before.get(key, (count, ""))[0]]
    return "".join("; " + meaning for meaning in dict.fromkeys(told))


def _folders(root: str, own: str) -> Iterator[Tuple[str, str]]:
    """Controller -> its folder; "" for version 2."""
    for line in _lines(own):
        _, _, named = line.partition(":")
        controllers, _, path = named.partition(":")
        for controller in controllers.split(","):
            yield controller, os.path.join(root, controller, path.strip("/"))


def _lines(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            yield from file.read().splitlines()
    except OSError:
        return
