"""What is watched: the processes below some roots, those of a container, or all that use a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from gpudoctor.jobs.watching import tree
from gpudoctor.jobs.watching.tree import Stat

COMMAND, PID, CONTAINER, JOB, GPUS = "command", "pid", "container", "job", "gpus"


@dataclass(frozen=True)
class Target:
    """kind: as above. name: as the user gave it. roots: processes whose descendants are watched too.

    cgroup: the folder of the container's control group, "" for none. For a command the roots are not known before it starts: it
    runs below this process, as a grandchild. seconds: how long it is watched, None without end. with_stacks: py-spy is asked.
    """

    kind: str
    name: str
    roots: tuple[int, ...] = ()
    cgroup: str = ""
    seconds: float | None = None
    with_stacks: bool = False

    def pids(self, all: dict[int, Stat], starter: int, on_gpus: Iterable[int]) -> list[int]:
        """Those that run now, parents first. starter: the gpudoctor that the user called."""
        if self.kind == COMMAND:
            between = [stat.pid for stat in all.values() if stat.parent == starter and stat.pid != os.getpid()]
            return [pid for pid in tree.below(between, all) if pid not in between]
        if self.kind == GPUS:
            return tree.below(sorted(on_gpus), all)
        inside = _members(self.cgroup) if self.cgroup else []
        return tree.below([*self.roots, *inside], all)


def _members(folder: str) -> list[int]:
    """Of a control group and those below it."""
    found: list[int] = []
    for path, _, _ in os.walk(folder):
        found += map(int, tree.read(f"{path}/cgroup.procs").split())
    return found
