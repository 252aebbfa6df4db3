"""One process that is looked at: who it is, what its threads did meanwhile, and what they wait for."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpudoctor.jobs.hanging import tree, waits
from gpudoctor.jobs.hanging.descriptors import Descriptors
from gpudoctor.jobs.hanging.proc import TICKS, Proc, Stat

MOST_THREADS = 40
_PYTHON = re.compile(r"(?:^|/)(?:python|pypy|pt_main_thread|uwsgi|gunicorn)[\w.]*$")
_FREEZER = Path("/sys/fs/cgroup")


@dataclass
class Sampled:
    """is_forked: it runs the program of its parent. line: the command line, which is not kept.

    is_blocked: a thread is in state D; what reads the memory of such a process could block as well.
    """

    pid: int
    name: str
    parent: int
    started: int
    line: str
    uid: int
    tracer: int
    inner_pid: int
    is_blocked: bool
    is_python: bool
    place: tree.Place
    variables: dict[str, str]
    is_frozen: bool
    is_forked: bool = False
    master: str = ""
    states: str = ""
    times: list[float] = field(default_factory=list)
    ticks: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    threads: dict[int, dict[str, Any]] = field(default_factory=dict)
    stacks: list[dict[str, Any]] = field(default_factory=list)
    no_stack: str = ""
    stays: dict[int, float] = field(default_factory=dict)

    def sample(self, now: float, threads: dict[int, tuple[str, int, str]], stat: Stat | None, moved: int) -> None:
        self.times.append(now)
        self.states += stat.state if stat else "X"
        self.ticks.append(stat.ticks if stat else 0)
        self.bytes.append(moved)
        for thread, (state, ticks, where) in threads.items():
            held = self.threads.setdefault(thread, {"id": thread, "name": "", "states": "", "ticks": [], "where": []})
            held["states"] += state
            held["ticks"].append(ticks)
            held["where"].append(where)

    def finish(self, proc: Proc, open_files: Descriptors) -> None:
        """Reads what the threads wait for, and joins it with their stacks."""
        by_thread = {stack["id"]: stack for stack in self.stacks}
        elapsed = max(self.times[-1] - self.times[0], 0.01) if self.times else 1.0
        interesting = sorted(self.threads, key=lambda thread: (thread != self.pid, thread not in by_thread, thread))
        kept = {}
        for thread in interesting[:MOST_THREADS]:
            held = self.threads[thread]
            stack = by_thread.get(thread, {})
            stat = proc.stat(self.pid, thread)
            where = held["where"]
            kept[thread] = {
                "id": thread,
                "name": stack.get("name") or (stat.name if stat else ""),
                "states": held["states"],
                "cores": round((held["ticks"][-1] - held["ticks"][0]) / TICKS / elapsed, 2),
                "where": where[-1] if where else "",
                "frames": stack.get("frames", []),
                "gil": bool(stack.get("gil")),
                "stays": self.stays.get(thread, -1.0),
                **waits.of_thread(proc, open_files, self.pid, thread, "D" in held["states"]),
            }
        self.threads = kept

    def value(self) -> dict[str, Any]:
        elapsed = max(self.times[-1] - self.times[0], 0.01) if self.times else 1.0
        ticks = self.ticks if "X" not in self.states else [0]
        return {
            "pid": self.pid,
            "inner_pid": self.inner_pid,
            "name": self.name,
            "parent": self.parent,
            "forked": self.is_forked,
            "ours": self.uid == os.geteuid() or os.geteuid() == 0,
            "tracer": self.tracer,
            "states": self.states,
            "frozen": self.is_frozen,
            "cores": round((ticks[-1] - ticks[0]) / TICKS / elapsed, 2),
            "moved_bytes": max(0, self.bytes[-1] - self.bytes[0]) if self.bytes else 0,
            "started": round(self.started / TICKS, 2),
            "python": self.is_python,
            "no_stack": self.no_stack if self.is_python else "",
            **vars(self.place),
            "master": self.master,
            "launcher": bool(tree.LAUNCHERS.search(self.line)) and self.place.rank < 0,
            "threads": list(self.threads.values()),
        }


def about(proc: Proc, pid: int, stat: Stat) -> Sampled:
    threads = waits.sample(proc, pid)
    is_blocked = any(state == "D" for state, _, _ in threads.values())
    status = proc.status(pid, "Uid", "TracerPid", "NSpid")
    line = stat.name if is_blocked else proc.line(pid) or stat.name
    variables = {} if is_blocked else proc.variables(pid)
    executable = proc.link(pid, "exe").removesuffix(" (deleted)")
    inner = status.get("NSpid", "").split()
    return Sampled(
        pid=pid,
        name=stat.name,
        parent=stat.parent,
        started=stat.started,
        line=line,
        is_forked=bool(line) and not is_blocked and proc.line(stat.parent) == line,
        uid=int((status.get("Uid") or "-1").split()[0]),
        tracer=int(status.get("TracerPid") or 0),
        inner_pid=int(inner[-1]) if inner else pid,
        is_blocked=is_blocked,
        is_python=bool(_PYTHON.search(executable) or _PYTHON.search(stat.name)),
        place=tree.place(variables),
        variables={name: value for name, value in variables.items() if name.startswith(("NCCL_RAS", "TORCH_"))},
        master=":".join(filter(None, (variables.get("MASTER_ADDR", ""), variables.get("MASTER_PORT", "")))),
        is_frozen=_is_frozen(proc, pid) or any("freezer" in where or "refrigerator" in where for _, _, where in threads.values()),
    )


def _is_frozen(proc: Proc, pid: int) -> bool:
    for line in proc.text(pid, "cgroup", 1 << 14).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if ".." in path.split("/"):
            continue
        with contextlib.suppress(OSError):
            if not controllers and "frozen 1" in (_FREEZER / path.lstrip("/") / "cgroup.events").read_text():
                return True
        with contextlib.suppress(OSError):
            if controllers == "freezer" and "FROZEN" in (_FREEZER / "freezer" / path.lstrip("/") / "freezer.state").read_text():
                return True
    return False
