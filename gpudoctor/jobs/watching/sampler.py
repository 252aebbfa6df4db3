"""The process that watches: it looks in rounds, costs less than a hundredth of a core, and keeps a summary of fixed size."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
from typing import Any

from gpudoctor.jobs.watching import dcgm, gpus, stacks, tree
from gpudoctor.jobs.watching.cgroup import Cgroup
from gpudoctor.jobs.watching.host import Host
from gpudoctor.jobs.watching.processes import Processes, Seen
from gpudoctor.jobs.watching.target import COMMAND, GPUS, Target
from gpudoctor.jobs.watching.timeline import COVERS, Timeline
from gpudoctor.worker.child import Channel, die_with_parent

ROUND_SECONDS, LONGEST_ROUND_SECONDS = 0.1, 0.9
COUNTED_ROUND_SECONDS = 0.45  # the intervals below are multiples of it
COUNTED_SECONDS, UNUSED_SECONDS = 0.9, 1.8  # where GPM counts all the time, nothing is missed between two looks
POWER_SECONDS, REASONS_SECONDS, SLOW_SECONDS, PROCESSES_SECONDS = 0.9, 0.9, 1.8, 1.8
LOOK_SECONDS, NEW_SECONDS, SCAN_SECONDS, RARE_SECONDS, KEEP_SECONDS = 0.9, 1.8, 15.0, 5.0, 30.0
EAGER_SECONDS = 5.0  # at the beginning, when a program starts its processes
BIN_SECONDS = 0.5
MOST_OF_A_CORE, AIM, ENOUGH_OF_A_CORE = 0.008, 0.006, 0.004
FIRST_PACE_SECONDS, PACE_SECONDS, SLOWEST = 1.5, 4.0, 8.0
MOST_STRETCHED = 2.0  # looks at processes are cheap, and few of them would show little
AT_MOST_SECONDS = 5.0  # between two looks at what changes slowly, and at GPUs that the job does not use
JITTER = 0.95
CONTEXT_MIB = 100.0  # of a process that has a CUDA context, at least
MOST_LIVE = 12  # processes that a live screen gets


class Pace:
    """Stretches intervals while looking costs too much: on a machine with many GPUs or processes.

    Not those of which a verdict depends: a mean over several seconds of a program that starts says nothing.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self._due: dict[str, float] = {}
        self._at, self._used, self._seconds = time.monotonic(), time.process_time(), FIRST_PACE_SECONDS

    def is_due(self, name: str, now: float, seconds: float, most: float = SLOWEST) -> bool:
        """most: the largest factor by which this one is stretched."""
        if now < self._due.get(name, 0.0):
            return False
        self._due[name] = now + seconds * min(self.factor, most) * JITTER
        return True

    def adapt(self, now: float) -> None:
        if now - self._at < self._seconds:
            return
        used = time.process_time()
        share = (used - self._used) / (now - self._at)
        if share > MOST_OF_A_CORE:
            self.factor = min(SLOWEST, self.factor * share / AIM)
        elif share < ENOUGH_OF_A_CORE:
            self.factor = max(1.0, self.factor / 1.2)
        self._at, self._used, self._seconds = now, used, PACE_SECONDS


def _named(gpu: gpus.Gpu, readings: dict[str, float]) -> dict[str, float]:
    return {f"gpu{gpu.index}.{name}": value for name, value in readings.items()}


class Sampler:
    """starter: the gpudoctor that was called. kept: a file descriptor for the summary, so that it outlives this process."""

    def __init__(self, target: Target, starter: int, kept: int) -> None:
        self._target, self._starter, self._kept = target, starter, kept
        _, self._gpus, self._why_no_gpu = gpus.opened()
        self._dcgm = dcgm.Dcgm([gpu for gpu in self._gpus if not gpu.gpm.works])
        self._host, self._processes, self._pace = Host(), Processes(), Pace()
        self._timeline = Timeline(BIN_SECONDS)
        self._cgroup: Cgroup | None = None
        self._began, self._cpu = time.monotonic(), time.process_time()
        are_counted = bool(self._gpus) and all(gpu.gpm.works for gpu in self._gpus)
        self.every = COUNTED_ROUND_SECONDS if are_counted else ROUND_SECONDS
        self._longest = COUNTED_ROUND_SECONDS if any(gpu.gpm.works for gpu in self._gpus) else LONGEST_ROUND_SECONDS
        self._rounds = 0
        self._looked = 0.0
        self._on_gpus: dict[int, set[int]] = {}
        self._pids: list[int] = []
        self._all: dict[int, tree.Stat] = {}
        self._are_hidden = self._were_seen = False
        self._stacks = stacks.Stacks(target.with_stacks)
        self.has_ended = False

    @property
    def pause(self) -> float:
        """Seconds from one look to the next."""
        return min(self.every * self._pace.factor, self._longest)

    def is_over(self, now: float) -> bool:
        """Whether it has watched for as long as it should."""
        return self._target.seconds is not None and now - self._began >= self._target.seconds

    def round(self, now: float) -> bool:
        """One look at what is due. Returns whether processes were looked at."""
        at = now - self._began
        self._rounds += 1
        values: dict[str, float | None] = {}
        for gpu in self._gpus:
            values |= self._read(gpu, now, at)
        if with_processes := self._pace.is_due("look", now, LOOK_SECONDS, most=MOST_STRETCHED):
            self._look(now, at)
            values |= self._columns()
        if self._pace.is_due("rare", now, RARE_SECONDS / (5 if at < EAGER_SECONDS else 1)):
            self._processes.rarely()
        self._timeline.add(at, values)
        if self._pace.is_due("keep", now, KEEP_SECONDS):
            self.keep("")
        self._pace.adapt(now)
        return with_processes

    def _read(self, gpu: gpus.Gpu, now: float, at: float) -> dict[str, float]:
        """What is due of a GPU: little of one that the job does not use. Each question costs some tenths of a millisecond."""

        def is_due(name: str, seconds: float, longest: float = AT_MOST_SECONDS) -> bool:
            return self._pace.is_due(f"{name} {gpu.index}", now, seconds, longest / seconds)

        if not self._is_used(gpu):
            if not is_due("unused", UNUSED_SECONDS):
                return {}
        elif gpu.gpm.works and not is_due("used", COUNTED_SECONDS, COUNTED_SECONDS):
            return {}
        found = gpu.fast()
        if counted := gpu.metrics():
            counted[COVERS] = gpu.gpm.seconds
            self._timeline.add(gpu.gpm.at - self._began, _named(gpu, counted), gpu.gpm.seconds)
        if is_due("power", POWER_SECONDS if gpu.gpm.works else ROUND_SECONDS):
            found |= gpu.power()
        if is_due("reasons", REASONS_SECONDS):
            gpu.count_reasons()
        if is_due("dcgm", COUNTED_SECONDS, COUNTED_SECONDS):
            found |= self._dcgm.read(gpu)
        if is_due("slow", SLOW_SECONDS):
            found |= gpu.slow(at)
        return _named(gpu, found)

    def _is_used(self, gpu: gpus.Gpu) -> bool:
        if self._target.kind == GPUS:
            return bool(gpu.on_it or gpu.latest.get("busy") or gpu.latest.get("graphics"))
        return gpu.index in self._on_gpus

    def _look(self, now: float, at: float, is_last: bool = False) -> None:
        self._looked = now
        if self._pace.is_due("processes", now, PROCESSES_SECONDS, AT_MOST_SECONDS / PROCESSES_SECONDS if self._on_gpus else 1.0):
            for gpu in self._gpus:
                gpu.processes()
        on_gpus = {pid for gpu in self._gpus for pid in gpu.on_it}
        seconds = NEW_SECONDS / (2 if at < EAGER_SECONDS else 1)
        if self._pace.is_due("new", now, seconds, most=1.0) or is_last:
            known = {} if self._pace.is_due("scan", now, SCAN_SECONDS, MOST_STRETCHED) else self._all
            self._all = tree.every(known, self._pids)
            self._were_seen |= any(pid in self._all for pid in on_gpus)
            self._are_hidden = not self._were_seen
            self._pids = self._target.pids(self._all, self._starter, on_gpus)
        else:
            for pid in self._pids:
                if stat := tree.stat_of(f"/proc/{pid}/stat"):
                    self._all[pid] = stat
                else:
                    self._all.pop(pid, None)
        self._processes.look(self._pids, self._all, at, on_gpus, self._are_hidden)
        self._stacks.look(at, next((seen.pid for seen in self._busiest("gpu")), None))
        if self._cgroup is None and self._pids and self._target.kind != GPUS:
            self._cgroup = Cgroup(self._pids[0])
        self.has_ended = not self._processes.now and self._target.kind not in (COMMAND, GPUS) and at > 0
        self._host.look()

    def _busiest(self, role: str) -> list[Seen]:
        return sorted(self._processes.of(role), key=lambda seen: -seen.cores)

    def _users(self, gpu: gpus.Gpu) -> list[Seen]:
        """The job's processes on this GPU. Where NVML lists none that can be seen, those that opened it, if its memory grew."""
        now = self._processes.now
        if not self._are_hidden:
            return [now[pid] for pid in gpu.on_it if pid in now]
        used, ran = (gpu.latest.get(name, 0.0) for name in ("memory_used_mib", "busy"))
        if self._target.kind == COMMAND:
            used, ran = used - gpu.first.get("memory_used_mib", used), ran if not gpu.first.get("busy") else 0.0
        is_used = used >= CONTEXT_MIB or ran > 0
        return [seen for seen in now.values() if seen.role == "gpu"] if is_used else []

    def _columns(self) -> dict[str, float | None]:
        """Of the processes, by the GPU that they use."""
        now = self._processes.now
        values: dict[str, float | None] = {f"host.{name}": mean.last for name, mean in self._host.means.items()}
        values["job.rss_mib"] = sum(seen.rss_mib for seen in now.values()) if now else None
        values["job.cores"] = sum(seen.cores for seen in now.values()) if now else None
        for gpu in self._gpus:
            if users := self._users(gpu):
                pids = {seen.pid for seen in users}
                self._on_gpus.setdefault(gpu.index, set()).update(pids)
                loaders = [seen.cores for seen in now.values() if seen.role == "loader" and seen.parent in pids]
                values[f"gpu{gpu.index}.loader_cores"] = sum(loaders) if loaders else None
                values[f"gpu{gpu.index}.main_thread"] = max(seen.busiest for seen in users)
                values[f"gpu{gpu.index}.busiest_loader"] = max(loaders, default=None)
        return values

    def live(self) -> dict[str, Any]:
        """What a screen or a stream shows."""
        now = sorted(self._processes.now.values(), key=lambda seen: (seen.role != "gpu", -seen.cores))
        return {
            "at": round(time.monotonic() - self._began, 2),
            "gpus": [
                {"index": gpu.index, "name": gpu.still.get("name"), "memory_mib": gpu.still.get("memory_mib"), **gpu.latest}
                | {"processes": [{"pid": pid, "mib": mib, "sm": gpu.rates.get(pid)} for pid, mib in gpu.on_it.items()]}
                for gpu in self._gpus
            ],
            "processes": [
                {"pid": seen.pid, "name": seen.name, "role": seen.role, "cores": round(seen.cores, 3)}
                | {"busiest_thread": round(seen.busiest, 3), "rss_mib": round(seen.rss_mib, 1)}
                for seen in now[:MOST_LIVE]
            ],
            "host": {name: mean.last for name, mean in self._host.means.items()},
            "own_cores": round(self._own(), 4),
        }

    def look_again(self) -> None:
        """At the end: what was started since the last look, and what each process did until now."""
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS / 2:
            self._look(now, now - self._began, is_last=True)

    def _own(self) -> float:
        return (time.process_time() - self._cpu) / max(time.monotonic() - self._began, 1e-9)

    def summary(self, ended: str) -> dict[str, Any]:
        seconds = time.monotonic() - self._began
        rows = {str(gpu.index): gpu.as_value() for gpu in self._gpus}
        mine = {**dict.fromkeys(self._pids), **{seen.pid: None for seen in self._processes.gone}}
        return {
            "target": {"kind": self._target.kind, "name": self._target.name},
            "ended": ended,
            "began": round(self._began, 3),
            "seconds": round(seconds, 2),
            "rounds": self._rounds,
            "own": {
                "cores": round(self._own(), 4),
                "start_seconds": round(self._cpu, 3),
                "rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
                "interval": round(seconds / max(self._rounds, 1), 3),
            },
            "no_gpu": self._why_no_gpu,
            "dcgm": self._dcgm.why_not,
            "gpus": rows,
            "used": {str(index): sorted(pids) for index, pids in self._on_gpus.items()},
            "hidden_pids": self._are_hidden,
            "stacks": self._stacks.as_value(),
            "no_stacks": self._stacks.why_not,
            "listed": any(row["processes"] for row in rows.values()),
            "pids": list(mine),
            "processes": self._processes.as_value(),
            "started": self._processes.started,
            "most_processes": self._processes.most,
            "host": self._host.as_value(),
            "cgroup": self._cgroup and self._cgroup.as_value(),
            "timeline": self._timeline.as_value(),
        }

    def keep(self, ended: str) -> None:
        """Overwrites what was kept: first its length is made wrong, so that a half-written one is never read."""
        data = json.dumps(self.summary(ended)).encode()
        os.pwrite(self._kept, (0).to_bytes(8, "big"), 0)
        os.pwrite(self._kept, data, 8)
        os.pwrite(self._kept, len(data).to_bytes(8, "big"), 0)


def life(channel: Channel, target: Target, starter: int, kept: int, is_live: bool) -> None:
    """From start to end: a SIGTERM, or the end of all that was watched."""
    die_with_parent()
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    with contextlib.suppress(OSError):
        os.nice(5)
    try:
        sampler = Sampler(target, starter, kept)
        channel.send(ready=True)
        while not stopped and not sampler.has_ended and os.getppid() == starter:
            began = time.monotonic()
            if sampler.is_over(began):
                break
            if sampler.round(began) and is_live:
                channel.send(live=sampler.live())
            if not stopped:
                time.sleep(max(0.0, sampler.pause - (time.monotonic() - began)))
        sampler.look_again()
        sampler.keep("gone" if sampler.has_ended else "stopped" if stopped else "over")
    except BrokenPipeError:
        sys.exit(1)
    channel.send(done=True)
