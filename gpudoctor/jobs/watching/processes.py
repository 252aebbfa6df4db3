"""What the processes of a job do: CPU time, states, where they wait, faults, input and output, memory."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from gpudoctor.jobs.watching import files, tree
from gpudoctor.jobs.watching.timeline import Mean
from gpudoctor.jobs.watching.tree import Stat, read

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)
MOST_PROCESSES = 256  # of a job, that are kept
MOST_THREADS = 64  # of a process, that are read
MOST_AT_A_TIME = 12
HOT_THREADS, ALL_THREADS_EVERY = 6, 4
MOST_SHOWN = 24  # in the answer
IO = ("rchar", "wchar", "read_bytes", "write_bytes")
STATUS = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches", "VmSwap", "VmHWM")


class Seen:
    """One process over the time. cores: CPU seconds per second, at the last look. busiest: the same for its busiest thread."""

    def __init__(self, stat: Stat, at: float) -> None:
        self.pid, self.name, self.parent, self.began = stat.pid, stat.name, stat.parent, stat.began
        self.role = "helper"
        self.was_on_gpu = False
        self.line = tree.command_line(stat.pid)
        self.first_at = self.last_at = at
        self.looked_at = -1.0
        self.cores = self.busiest = 0.0
        self.rss_mib = self.first_rss = stat.rss_pages * PAGE_MIB
        self.cpu, self.thread = Mean(), Mean()
        self.states: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()
        self.affinity: int | None = None
        self.file_systems: dict[str, str] = {}
        self.nvidia: tuple[int, ...] = ()
        self.descriptors: int | None = None
        self._stat, self._first_ticks = stat, stat.ticks
        self._threads: dict[int, tuple[int, float]] = {}
        self._hot: list[int] = []
        self._looks = 0
        self.thread_cores: dict[int, Mean] = {}
        self._names: dict[int, str] = {}
        self._first = self._counters()
        self._last = self._first
        self._queue = self._waited()
        self._queued = 0.0
        self.first_faults = stat.major_faults
        self.is_unreadable = not self._first

    def look(self, stat: Stat, at: float, with_threads: bool) -> None:
        seconds = at - self.last_at
        if seconds <= 0:
            return
        self.cores = (stat.ticks - self._stat.ticks) / TICKS / seconds
        self.cpu.add(self.cores)
        self.states[stat.state] += 1
        self.rss_mib = stat.rss_pages * PAGE_MIB
        if stat.state == "D" or self.role in ("gpu", "loader"):
            where = read(f"/proc/{self.pid}/wchan", 64)
            self.waits[where if where not in ("", "0") else stat.state] += 1
        if with_threads:
            self._look_at_threads()
        else:
            self.busiest = min(self.cores, 1.0)
        self.thread.add(self.busiest)
        waited = self._waited()
        self._queued += max(0.0, waited - self._queue)
        self._stat, self.last_at, self._queue = stat, at, waited

    def rarely(self) -> None:
        """What costs more and changes little."""
        self._last = self._counters() or self._last
        self.looked_at = self.last_at
        try:
            self.affinity = len(os.sched_getaffinity(self.pid))
        except OSError:
            self.affinity = None
        self.descriptors, self.nvidia, systems = files.opened(self.pid)
        self.file_systems |= systems

    def _look_at_threads(self) -> None:
        self.busiest = 0.0
        try:
            ids = self._hot if self._looks % ALL_THREADS_EVERY else self._all_threads()
        except OSError:
            return
        self._looks += 1
        now = time.monotonic()
        for tid in ids:
            thread = tree.stat_of(f"/proc/{self.pid}/task/{tid}/stat")
            if not thread:
                continue
            before = self._threads.get(thread.pid)
            self._threads[thread.pid] = thread.ticks, now
            if before and now > before[1]:
                cores = (thread.ticks - before[0]) / TICKS / (now - before[1])
                self.busiest = max(self.busiest, cores)
                if cores > 0.01 or thread.pid in self.thread_cores:
                    self.thread_cores.setdefault(thread.pid, Mean()).add(cores)
                    self._names[thread.pid] = thread.name

    def _all_threads(self) -> list[int]:
        """Also notes those that worked most until now: they alone are looked at until the next time."""
        busiest = sorted(self.thread_cores, key=lambda tid: -self.thread_cores[tid].last)[:HOT_THREADS]
        self._hot = list(dict.fromkeys((self.pid, *busiest)))
        return [int(entry.name) for entry in os.scandir(f"/proc/{self.pid}/task")][:MOST_THREADS]

    def _counters(self) -> dict[str, float]:
        """Of /proc/PID/io and status; without those that this user may not read."""
        found: dict[str, float] = {}
        for file, names in (("io", IO), ("status", STATUS)):
            for line in read(f"/proc/{self.pid}/{file}", 4096).splitlines():
                name, _, value = line.partition(":")
                if name in names:
                    found[name] = float(value.split()[0])
        return found

    def _waited(self) -> float:
        """Seconds that its main thread was ready and waited for a CPU."""
        fields = read(f"/proc/{self.pid}/schedstat", 64).split()
        return int(fields[1]) / 1e9 if len(fields) > 1 else 0.0

    def rates(self) -> dict[str, float]:
        """Counters per second."""
        seconds = max(self.last_at - self.first_at, 1e-9)
        return {
            name: (self._last[name] - first) / seconds
            for name, first in self._first.items()
            if name in self._last and not name.startswith("Vm")
        }

    def as_value(self) -> dict[str, Any]:
        number = sum(self.states.values()) or 1
        waits = sum(self.waits.values()) or 1
        threads = sorted(self.thread_cores.items(), key=lambda item: -item[1].total)[:6]
        return {
            "parent": self.parent,
            "name": self.name,
            "role": self.role,
            "seconds": round(self.last_at - self.first_at, 2),
            "cores": round((self._stat.ticks - self._first_ticks) / TICKS / max(self.last_at - self.first_at, 1e-9), 3),
            "busiest_thread": round(self.thread.total / max(self.thread.number, 1), 3),
            "threads": [
                {"name": self._names[tid], "is_main": tid == self.pid, "cores": round(mean.total / mean.number, 3)}
                for tid, mean in threads
            ],
            "states": {state: round(count / number, 3) for state, count in self.states.items()},
            "waits": {name: round(count / waits, 3) for name, count in self.waits.most_common(4)},
            "queued": round(self._queued / max(self.last_at - self.first_at, 1e-9), 3),
            "rates": {name: round(value, 1) for name, value in self.rates().items()},
            "major_faults": self._stat.major_faults - self.first_faults,
            "first_rss_mib": round(self.first_rss, 1),
            "rss_mib": round(self.rss_mib, 1),
            "swap_mib": round(self._last.get("VmSwap", 0.0) / 1024, 1),
            "descriptors": self.descriptors,
            "affinity": self.affinity,
            "file_systems": self.file_systems,
            "nvidia": list(self.nvidia),
            "readable": not self.is_unreadable,
        }


class Processes:
    """Those of the job. now: pid -> process, of those that run."""

    def __init__(self) -> None:
        self.now: dict[int, Seen] = {}
        self.gone: list[Seen] = []
        self.most = 0
        self.started = 0

    def look(self, pids: Iterable[int], all: dict[int, Stat], at: float, on_gpus: set[int], are_hidden: bool) -> None:
        """on_gpus: pids that NVML lists. are_hidden: it lists none that can be seen here."""
        wanted = {pid: all[pid] for pid in pids if pid in all and all[pid].state != "Z"}
        for pid in [pid for pid, seen in self.now.items() if pid not in wanted or wanted[pid].began != seen.began]:
            self._let_go(self.now.pop(pid))
        for pid, stat in wanted.items():
            if pid in self.now:
                seen = self.now[pid]
                seen.look(stat, at, with_threads=seen.role == "gpu" or seen.cores > 0.5)
            elif len(self.now) < MOST_PROCESSES:
                self.now[pid] = Seen(stat, at)
                self.started += 1
        self.most = max(self.most, len(wanted))
        assumed = self._assumed() if are_hidden else set()
        for pid, seen in self.now.items():
            seen.was_on_gpu |= pid in on_gpus
            has_gpu = seen.was_on_gpu or pid in assumed
            seen.role = tree.role(wanted[pid], seen.line, has_gpu, self._parent_line(seen))

    def _parent_line(self, seen: Seen) -> str:
        parent = self.now.get(seen.parent)
        return parent.line if parent else ""

    def _assumed(self) -> set[int]:
        """Those that use a GPU where NVML does not say: those that opened one, else the first that is not a launcher."""
        opened = {seen.pid for seen in self.now.values() if self._opened_gpus_itself(seen)}
        first = next((seen.pid for seen in self.now.values() if seen.name not in tree.LAUNCHERS), None)
        return opened or ({first} if first else set())

    def _opened_gpus_itself(self, seen: Seen) -> bool:
        """A loader that was forked inherits the open GPUs of its parent."""
        parent = self.now.get(seen.parent)
        return bool(seen.nvidia) and not (parent and parent.nvidia and parent.line == seen.line)

    def _let_go(self, seen: Seen) -> None:
        """Keeps those that worked most."""
        self.gone.append(seen)
        if len(self.gone) > MOST_PROCESSES:
            self.gone.sort(key=lambda one: -one.cpu.total)
            del self.gone[MOST_PROCESSES // 2 :]

    def rarely(self) -> None:
        """A few at a time, each in its turn."""
        for seen in sorted(self.now.values(), key=lambda seen: seen.looked_at)[:MOST_AT_A_TIME]:
            seen.rarely()

    def of(self, role: str) -> Iterator[Seen]:
        return (seen for seen in self.now.values() if seen.role == role)

    def as_value(self) -> dict[str, dict[str, Any]]:
        """By pid, the most important: what uses a GPU, then what works most."""
        every = [*self.now.values(), *self.gone]
        every.sort(key=lambda one: (one.role != "gpu", -one.cpu.total))
        return {str(seen.pid): seen.as_value() for seen in reversed(every[:MOST_SHOWN]) if seen.cpu.number}
