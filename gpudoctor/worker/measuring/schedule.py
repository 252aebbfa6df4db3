"""Runs the workloads of a job: each starts when its framework is imported and its GPUs are free, and is killed on timeout.

Work on one GPU is serial; GPUs work in parallel. The results of each run are sent when it ends, even if it was killed. Runs that
had not started when the job was stopped are reported as "cut".
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Any, Callable, Dict, List, Set, Tuple

from gpudoctor.worker.child import STUCK, adopt_orphans, sweep
from gpudoctor.worker.measuring import cgroup_events, guard, recorded
from gpudoctor.worker.measuring.bench import EACH, ONCE
from gpudoctor.worker.measuring.fork_server import RUNTIMES, ForkServer, last_words
from gpudoctor.worker.measuring.sampler import Sampler
from gpudoctor.worker.measuring.task import GRACE_SECONDS, Gpu, Task, planned
from gpudoctor.worker.reply import Reply

Send = Callable[..., None]
SIDE_BY_SIDE = (EACH, ONCE)  # the scopes that allow work on other GPUs in parallel
POLL_SECONDS = 0.1  # how soon a deadline is noticed
TELL_SECONDS = 0.5  # interval of progress messages
LAST_SAMPLES_SECONDS = 0.2  # how long a reply waits for the last samples
CUT_OFF = "the run was cut off"
TIME_OVER = "the time limit for all measurements (--measure-timeout) was reached"


def main(job: Dict[str, Any], send: Send) -> None:
    """Runs a job {"workloads", "gpus", "level", "seconds", "folder", "imports", "options"}; SIGTERM stops it.

    imports: frameworks to import although no workload needs them; can be left out. options: workload -> what the user chose for
    it; can be left out.
    """
    cut, inlet = os.pipe()
    signal.signal(signal.SIGTERM, lambda number, frame: os.write(inlet, b"\n") and None)
    adopt_orphans()
    folder = os.path.join(job["folder"], "measured")
    os.mkdir(folder)
    gpus = [Gpu(*gpu) for gpu in job["gpus"]]
    tasks = list(planned(job["workloads"], gpus, folder, send, job.get("options", {})))
    schedule = Schedule(tasks, job["level"], folder, send, Sampler([gpu.index for gpu in gpus], job.get("is_long", False)), cut)
    schedule.is_guarded = job.get("is_long", False)
    schedule.imports = set(job.get("imports", ()))
    try:
        why = schedule.run(time.monotonic() + job["seconds"])
    except Exception as bug:  # also if the receiver is gone
        why = "gpudoctor's own bug: %s: %s" % (type(bug).__name__, bug)
    schedule.end(why)


class Schedule:
    """All tasks, from the first import to the last reply."""

    def __init__(self, tasks: List[Task], level: str, folder: str, send: Send, sampler: Sampler, cut: int) -> None:
        """cut: a pipe that becomes readable when the run has to end."""
        self.pending = tasks
        self.started: Dict[str, Task] = {}
        self.over: List[Task] = []  # ended, but the last samples have not arrived
        self.level = level
        self.folder = folder
        self.send = send
        self.sampler = sampler
        self.cut = cut
        self.hosts: Dict[str, ForkServer] = {}
        self.imports: Set[str] = set()  # that are still to be tried
        self.lost: Dict[int, str] = {}  # GPU -> the task that still holds it and cannot be killed
        self.is_guarded = False
        self.stopped: Dict[int, str] = {}  # GPU -> why it gets no more work
        self.told = 0.0
        self.began = time.monotonic()

    def run(self, deadline: float) -> str:
        """Runs everything; returns why it ended early, if it did."""
        while self.pending or self.started or self.over or self.imports:
            now = time.monotonic()
            if now >= deadline:
                return TIME_OVER
            self._import(now)
            self._start_ready(now)
            self._give_up(now)
            self._tell(now)
            if self._listen():
                return CUT_OFF
            self._deliver(time.monotonic())
            if self.is_guarded:
                self._protect()
        return ""

    def end(self, why: str) -> None:
        """Kills what is running; then sends the known results, and reports the rest as missing."""
        for task in self.started.values():
            task.verdict = task.verdict if task.verdict[0] else ("cut", why)
            self.hosts[task.workload.runtime].end(task.id)
        end = time.monotonic() + GRACE_SECONDS
        while self.started and time.monotonic() < end:
            self._listen()
        self.sampler.stop()
        for host in self.hosts.values():
            host.close()
        sweep()
        for task in list(self.started.values()):
            self._finish(task, *task.verdict)
        for task in list(self.pending):
            self._finish(task, "cut", why + " before this began")
        self._deliver(float("inf"))
        for name, reply in self.sampler.replies():
            self.send(measured=name, reply=vars(reply))

    def _import(self, now: float) -> None:
        """Imports as many frameworks at the same time as there are CPU cores, but one that measures."""
        importing = [host for host in self.hosts.values() if not host.ready]
        for host in importing:
            if now > host.deadline:
                detail = "its import did not finish within %.0f s" % RUNTIMES[host.runtime].seconds
                self._close(host, stack=True)
                self._import_failed(host, "timeout", detail)
        wanted = ({task.workload.runtime for task in self.pending} | self.imports) - set(self.hosts)
        free = max(1, len(os.sched_getaffinity(0)) - 1) - len(importing)
        for runtime in sorted(wanted, key=list(RUNTIMES).index)[: max(0, free)]:
            self.hosts[runtime] = ForkServer(runtime, self.folder)

    def _start_ready(self, now: float) -> None:
        for task in list(self.pending):
            host = self.hosts.get(task.workload.runtime)
            stuck = [self.lost[gpu.index] for gpu in task.gpus if gpu.index in self.lost]
            if stuck:
                self._finish(task, "skipped", stuck[0])
            elif host and host.ready and task.workload.starts_early:
                task.prepare(now)
                self._start(task, host)
            elif host and host.ready and self._is_free(task):
                task.begin(now)
                self._start(task, host)
        if not self.pending:
            for task in self.started.values():
                if task.waits() and self._is_free(task):
                    task.begin(now)

    def _start(self, task: Task, host: ForkServer) -> None:
        self.pending.remove(task)
        self.started[task.id] = task
        host.run(task.request(self.level))

    def _is_free(self, task: Task) -> bool:
        """Whether the task can use its GPUs now."""
        running = [other for other in self.started.values() if other.has_turn]
        if task.workload.scope not in SIDE_BY_SIDE:
            return not running
        shared = any(other.workload.scope not in SIDE_BY_SIDE for other in running)
        return not shared and task.gpus[0] not in [other.gpus[0] for other in running]

    def _give_up(self, now: float) -> None:
        """Kills tasks on timeout, and stops waiting for those that cannot be killed."""
        for task in list(self.started.values()):
            if now < task.deadline or task.waits():
                continue
            if not task.verdict[0]:
                task.give_up(now)
                self.hosts[task.workload.runtime].end(task.id, stack=True)
            else:
                self.lost.update({gpu.index: "%s on it could not be killed" % task.id for gpu in task.gpus})
                self._finish(task, task.verdict[0], "%s; %s" % (task.verdict[1], STUCK))

    def _protect(self) -> None:
        """Ends the work of a GPU that is in danger, and all that it shares with others, which go on with their own."""
        for gpu, why in guard.dangers(self.sampler).items():
            if gpu in self.stopped:
                continue
            self.stopped[gpu] = why
            for task in [task for task in (*self.pending, *self.started.values()) if gpu in [own.index for own in task.gpus]]:
                if task in self.pending:
                    self._finish(task, "guarded", why + " before this began")
                elif not task.verdict[0]:
                    task.verdict = ("guarded", why)
                    task.deadline = time.monotonic() + GRACE_SECONDS
                    self.hosts[task.workload.runtime].end(task.id)

    def _listen(self) -> bool:
        """Reads messages of hosts and the sampler; returns whether the run has to stop."""
        hosts = {host.notices: host for host in self.hosts.values()}
        sources: List[Any] = [self.cut, *hosts] + [self.sampler.lines] * (not self.sampler.lines.ended)
        readable = select.select(sources, [], [], POLL_SECONDS)[0]
        for source in readable:
            if source is self.sampler.lines:
                self.sampler.take()
            elif source in hosts:
                self._hear(hosts[source])
        return self.cut in readable and bool(os.read(self.cut, 1))

    def _hear(self, host: ForkServer) -> None:
        for notice in host.notices.read():
            if "ready" in notice:
                self._imported(host, notice)
            elif "failed" in notice:
                self._close(host)
                self._import_failed(host, notice["failed"], notice["detail"])
                return
            elif notice["ended"] in self.started:
                task = self.started[notice["ended"]]
                task.end_as_told(notice["manner"], notice["stopped"])
                self._remove(task)
        if host.notices.ended:
            self._gone(host)

    def _imported(self, host: ForkServer, notice: Dict[str, Any]) -> None:
        host.ready = True
        self.imports.discard(host.runtime)
        if host.runtime == RUNTIMES[host.runtime].package:
            facts = {"seconds": notice["ready"], **{name: notice[name] for name in ("version", "file", "libraries")}}
            self.send(measured="import:" + host.runtime, reply=vars(Reply("ok", facts)))

    def _import_failed(self, host: ForkServer, status: str, detail: str) -> None:
        texts = {"prints": last_words(host.file), "recorded": self._recorded()} if status != "missing" else {}
        package = RUNTIMES[host.runtime].package
        self.imports.discard(host.runtime)
        if host.runtime == package:
            value = {name: text for name, text in texts.items() if text}
            self.send(measured="import:" + package, reply=vars(Reply(status, value or None, detail)))
        if status == "missing":
            self._drop(host, "missing", "%s is not installed" % package)
        else:
            self._drop(host, "skipped", "%s cannot be imported" % package)

    def _gone(self, host: ForkServer) -> None:
        """If a server dies, its running and pending tasks fail."""
        manner = self._close(host) or "it ended"
        if not host.ready:
            self._import_failed(host, "died", manner + " while it was imported" + cgroup_events.since(host.counted))
            return
        for task in [task for task in self.started.values() if task.workload.runtime == host.runtime]:
            self._finish(task, "died", "the process that forked it died: " + manner)
        self._drop(host, "skipped", "the process that imported %s has ended" % host.runtime)

    def _close(self, host: ForkServer, stack: bool = False) -> str:
        """Ends a server with all its children; returns how it ended."""
        del self.hosts[host.runtime]
        manner = host.close(stack)
        sweep([self.sampler.child.pid, *(other.child.pid for other in self.hosts.values())])
        return manner

    def _drop(self, host: ForkServer, status: str, detail: str) -> None:
        """Fails the pending tasks of this host."""
        for task in [task for task in self.pending if task.workload.runtime == host.runtime]:
            self._finish(task, status, detail)

    def _finish(self, task: Task, status: str, detail: str) -> None:
        task.end(status, detail)
        self._remove(task)

    def _remove(self, task: Task) -> None:
        if task in self.pending:
            self.pending.remove(task)
        self.started.pop(task.id, None)
        self.over.append(task)

    def _deliver(self, now: float) -> None:
        """Sends the replies whose last samples have arrived."""
        for task in list(self.over):
            if self.sampler.has_seen(task.measured_until()) or now > task.ended + LAST_SAMPLES_SECONDS:
                self.over.remove(task)
                self._remember(task)
                self.send(measured=task.id, reply=vars(task.reply(self.sampler, self._recorded)))

    def _recorded(self) -> str:
        return recorded.since(self.began)

    def _remember(self, task: Task) -> None:
        """Adds the time window of the task to the history of its GPUs."""
        began, ended = task.window()
        for gpu in task.gpus if ended else ():
            self.sampler.histories[gpu.index].ran(task.name, began, ended)

    def _tell(self, now: float) -> None:
        if now - self.told < TELL_SECONDS:
            return
        self.told = now
        names = sorted(task.id for task in self.started.values() if task.has_turn)
        names += ["import " + host.runtime for host in self.hosts.values() if not host.ready]
        seen = self.sampler.seen() if self.is_guarded else {}
        self.send(running=names, left=round(self._left(now), 1), seen=seen)

    def _left(self, now: float) -> float:
        """The estimated seconds left: each GPU's own work in parallel, the rest one by one."""
        each: Dict[int, float] = {}
        rest = 0.0
        tasks: List[Tuple[Task, float]] = [(task, 0.0) for task in self.pending]
        tasks += [(task, now - task.started if task.has_turn else 0.0) for task in self.started.values()]
        for task, spent in tasks:
            seconds = max(0.0, task.typical_seconds - spent)
            if task.workload.scope in SIDE_BY_SIDE:
                each[task.gpus[0].index] = each.get(task.gpus[0].index, 0.0) + seconds
            else:
                rest += seconds
        imports = {task.workload.runtime for task in self.pending} - {name for name, host in self.hosts.items() if host.ready}
        return rest + max(each.values(), default=0.0) + max((RUNTIMES[name].usual_seconds for name in imports), default=0.0)
