"""Looks at a job for some seconds: its processes, stacks and GPUs at once; then asks NCCL and reads the recorder's dumps."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpudoctor.errors import UserError
from gpudoctor.jobs.hanging import dumping, gpus, ranks, ras, recorder, stacks, tree, waits
from gpudoctor.jobs.hanging.descriptors import Descriptors, locks
from gpudoctor.jobs.hanging.proc import TICKS, Proc
from gpudoctor.jobs.hanging.process import Sampled, about
from gpudoctor.jobs.hanging.tree import Tree
from gpudoctor.model import Reply

QUESTION = "job-hang"
ROUNDS = 4
MOST_DENIED = 8

Tell = Callable[[str], None]


@dataclass(frozen=True)
class How:
    """seconds: how long to look. native: with C frames, for which the program is paused for an instant. dump: ask PyTorch to
    write its flight recorders, through its own pipes."""

    seconds: float
    native: bool = False
    dump: bool = False


def looked(proc: Proc, found: Tree, how: How, tell: Tell) -> Reply:
    """The answer to the question `job-hang`. The program is not paused and nothing is sent to it, unless `how` says so."""
    started = time.monotonic()
    seconds = how.seconds
    tell(f"looking at {len(found.pids)} processes for {seconds:g} s")
    every = {pid: about(proc, pid, found.everyone[pid]) for pid in found.pids}
    program = stacks.tool()
    pythons = [pid for pid, one in every.items() if one.is_python and not one.is_blocked]
    pythons.sort(key=lambda pid: every[pid].place.rank < 0)
    watching = gpus.Watching(seconds)
    recording = stacks.Recording(program, pythons, seconds)
    try:
        first, why_not = ranks.asked(proc, every)
        _sample(proc, every, max(0.2, seconds - (time.monotonic() - started)))
        stays = recording.ended(seconds + 5)
        tell("reading stacks")
        dumps = {pid: stacks.dumped(program, pid, how.native) for pid in pythons[: stacks.MOST_DUMPED]} if program else {}
        again = ras.asked(first["address"]) if first and ranks.can_ask_again(first) else None
        used = watching.ended()
    finally:
        recording.close()
        watching.close()
    no_dumps = ""
    if how.dump:
        tell("asking for the flight recorders")
        no_dumps = dumping.requested(every.values())
    open_files = Descriptors(proc, found.pids, found.everyone)
    for pid, one in every.items():
        one.stacks, one.no_stack = dumps.get(pid, ([], "" if program else stacks.INSTALL))
        one.stays = stays.get(pid, {})
        one.finish(proc, open_files)
    value = {
        "asked": found.asked,
        "seconds": round(time.monotonic() - started, 2),
        "uptime": uptime(proc),
        "processes": [one.value() for one in every.values()],
        "left_out": found.left_out,
        "denied": sorted(proc.denied & set(found.pids))[:MOST_DENIED],
        "no_stacks": "" if program else stacks.INSTALL,
        "locks": [lock for lock in locks(proc) if lock["pid"] in every],
        "gpus": used.get("gpus", []),
        "no_gpus": used.get("failed", ""),
        "ras": [answer for answer in (first, again) if answer],
        "no_ras": why_not,
        "no_dumps": no_dumps,
        "dumps": _dumps(proc, every),
        "timeouts": [],
    }
    return Reply("ok", value, "", round(time.monotonic() - started, 2))


def _sample(proc: Proc, every: dict[int, Sampled], seconds: float) -> None:
    for number in range(ROUNDS):
        if number:
            time.sleep(seconds / (ROUNDS - 1))
        now = time.monotonic()
        for pid, one in every.items():
            one.sample(now, waits.sample(proc, pid), proc.stat(pid), proc.moved_bytes(pid))


def _dumps(proc: Proc, every: dict[int, Sampled]) -> list[dict[str, Any]]:
    """The recorder's dumps of this job: those that were written since its first process started."""
    members = [one for one in every.values() if one.place.rank >= 0] or list(every.values())
    if not members:
        return []
    since = time.time() - uptime(proc) + min(one.started for one in members) / TICKS
    found = []
    prefixes = recorder.places(proc.variables(one.pid) for one in members if not one.is_blocked)
    owners = {one.uid for one in members}
    for path in recorder.beside(prefixes, since, owners):
        with contextlib.suppress(UserError):
            found.append(recorder.read(path, owners))
    return found


def uptime(proc: Proc) -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return float((proc.root / "uptime").read_text().split()[0])
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def of_files(dumps: list[dict[str, Any]], timeouts: list[dict[str, Any]]) -> Reply:
    """The answer from files alone."""
    return Reply("ok", {"asked": "files", "seconds": 0.0, "dumps": dumps, "timeouts": timeouts})


def with_files(reply: Reply, dumps: list[dict[str, Any]], timeouts: list[dict[str, Any]]) -> Reply:
    value = {**reply.value, "dumps": [*reply.value["dumps"], *dumps], "timeouts": timeouts}
    return Reply(reply.status, value, reply.detail, reply.seconds)


def tree_of(proc: Proc, pid: int | None, job: str | None) -> Tree | None:
    """UserError if there is no such process or job here. None if neither is given."""
    if pid is not None:
        return tree.of_pid(proc, pid)
    return tree.of_slurm(proc, job) if job is not None else None


def can_see_all() -> bool:
    return os.geteuid() == 0
