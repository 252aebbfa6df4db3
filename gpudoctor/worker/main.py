"""Runs in the target: runs all probes in parallel, each in its own process, or measures; streams the replies.

interpreter.py starts it with a job and reads what comes back: lines of JSON after a marker on a private descriptor, so that
output of libraries cannot corrupt them. A probe that crashes or hangs loses only its current question.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import selectors
import signal
import sys
import time
from typing import Any, Dict, Iterator, List, Tuple

from gpudoctor.worker.changed import inherited
from gpudoctor.worker.child import STUCK, Channel, adopt_orphans, sweep, talking
from gpudoctor.worker.probes.machine import Machine
from gpudoctor.worker.probes.table import PROBES, Probe
from gpudoctor.worker.reply import Reply

REFUSED = "refused-processes"
NOT_HERE = ("nvml", "cuda")
RETRIES = 3  # how often a probe that died is restarted, without the step that killed it


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupts what waits, again and again, since a probe goes on with its next question."""

    def interrupt(number: int, frame: Any) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "no answer in %g s" % seconds)

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Asking:
    """One probe, run by a child process."""

    def __init__(self, probe: Probe, root: str, known: Dict[str, Reply], deadline: float, skip: Tuple[str, ...]) -> None:
        self.probe = probe
        self.skip = skip
        self.started = time.monotonic()
        self.deadline = min(self.started + probe.seconds, deadline)
        self.note = mmap.mmap(-1, 1024)  # shared with the child: its current question and step
        machine = Machine(root, known, self._at, skip)
        self.child, self.lines = talking(lambda channel: self._ask(machine, channel))

    def _at(self, question: str, step: str) -> None:
        text = (question + "\0" + step).encode("utf-8", "replace")[: len(self.note) - 1]
        self.note[: len(text) + 1] = text + b"\n"

    def _ask(self, machine: Machine, channel: Channel) -> None:
        for question, reply in self.probe.ask(machine):
            channel.send(question=question, reply=vars(reply))

    def at(self) -> Tuple[str, str]:
        """The question and its step that the child started last."""
        text = bytes(self.note).split(b"\n", 1)[0].decode("utf-8", "replace").strip("\0")
        question, _, step = text.partition("\0")
        return question, step

    def replies(self) -> List[Tuple[str, Reply]]:
        """The replies since the last call."""
        return [(line["question"], Reply(**line["reply"])) for line in self.lines.read() if {"question", "reply"} <= line.keys()]

    def end(self) -> str:
        """How the child ended after its last message: with an exit, or killed."""
        manner = self.child.wait()
        return self.child.killed() if manner is None else manner


class Round:
    """All probes in parallel, until the last has answered or the time is up."""

    def __init__(self, channel: Channel, root: str, seconds: float, probes: Tuple[Probe, ...]) -> None:
        self.channel = channel
        self.root = root
        self.deadline = time.monotonic() + seconds
        self.waiting = list(probes)
        self.running: Dict[str, Asking] = {}
        self.known: Dict[str, Reply] = {}
        self.selector = selectors.DefaultSelector()

    def run(self) -> None:
        try:
            self.start_ready()
            while self.running or self.waiting:
                nearest = min([self.deadline, *(asking.deadline for asking in self.running.values())])
                for key, _ in self.selector.select(max(0.0, nearest - time.monotonic())) if self.running else ():
                    self.listen(key.data)
                for asking in [a for a in self.running.values() if a.deadline <= time.monotonic()]:
                    self.give_up(asking)
                self.start_ready()
        finally:
            for asking in self.running.values():
                asking.child.killed()

    def start_ready(self) -> None:
        done = set(self.running) | {probe.name for probe in self.waiting}
        ready = [probe for probe in self.waiting if probe.after not in done]
        for probe in ready:
            if not self.starts(probe):
                if self.running:  # perhaps when one of them has ended
                    break
                self.ask_here(probe)
            self.waiting.remove(probe)
        if ready:
            self.tell()

    def ask_here(self, probe: Probe) -> None:
        """Asks in this process, but loads no driver here: it may crash or hang."""
        started, status, detail = time.monotonic(), "ok", ""
        machine = Machine(self.root, self.known)
        try:
            if probe.name in NOT_HERE:
                raise OSError(errno.EAGAIN, "no process could be started for it")
            with interrupted_after(probe.seconds):
                for question, reply in probe.ask(machine):
                    self.keep(question, reply)
        except Exception as failure:
            status, detail = "error", str(getattr(failure, "strerror", None) or failure)
            self.keep(probe.name, Reply(status, None, detail))
        self.keep("probe:" + probe.name, Reply(status, None, detail, round(time.monotonic() - started, 4)))

    def starts(self, probe: Probe, skip: Tuple[str, ...] = ()) -> bool:
        """False if the kernel refuses a process, as at the limit on them."""
        try:
            asking = Asking(probe, self.root, self.known, self.deadline, skip)
        except OSError as failure:
            self.keep(REFUSED, Reply("ok", failure.strerror))
            return False
        self.running[probe.name] = asking
        self.selector.register(asking.lines, selectors.EVENT_READ, asking)
        return True

    def listen(self, asking: Asking) -> None:
        for question, reply in asking.replies():
            self.keep(question, reply)
        if asking.lines.ended:
            self.finish(asking)

    def finish(self, asking: Asking) -> None:
        manner = asking.end()
        self.remove(asking)
        question, step = asking.at()
        is_again = bool(manner and step and step not in asking.skip and len(asking.skip) < RETRIES)
        if is_again and self.starts(asking.probe, (*asking.skip, step)):
            return
        if manner:
            self.record(asking, "died", "%s in %s" % (manner, step or question or "its first question"))
        else:
            self.record(asking, "ok", "")

    def give_up(self, asking: Asking) -> None:
        manner = asking.child.killed()
        seconds = time.monotonic() - asking.started
        detail = "no answer in %.1f s from %s" % (seconds, asking.at()[1] or asking.at()[0] or "its first question")
        self.remove(asking)
        self.record(asking, "timeout", detail + ("; " + manner if manner == STUCK else ""))

    def record(self, asking: Asking, status: str, detail: str) -> None:
        reply = Reply(status, None, detail, round(time.monotonic() - asking.started, 4))
        question = asking.at()[0]
        if status != "ok" and question:
            self.keep(question, reply)
        self.keep("probe:" + asking.probe.name, reply)
        self.tell()

    def remove(self, asking: Asking) -> None:
        self.selector.unregister(asking.lines)
        asking.lines.close()
        del self.running[asking.probe.name]

    def keep(self, question: str, reply: Reply) -> None:
        self.known[question] = reply
        self.channel.send(question=question, reply=vars(reply))

    def tell(self) -> None:
        self.channel.send(asking=sorted(self.running))


def _chosen(names: List[str]) -> Tuple[Probe, ...]:
    from gpudoctor.worker.probes.table import DEEP

    return tuple(probe for probe in (*PROBES, *DEEP) if probe.name in names)


def _ask(job: Dict[str, Any], channel: Channel) -> None:
    asking = Round(channel, job.get("root", "/"), job["seconds"], _chosen(job["probes"]) if "probes" in job else PROBES)
    asking.known.update({question: Reply("ok", value) for question, value in job.get("known", {}).items()})
    adopt_orphans()
    try:
        asking.run()
        while job.get("more"):
            channel.send(more=True)
            names = json.loads(sys.stdin.readline() or "[]")
            if not names:
                break
            asking.waiting += _chosen(names)
            asking.run()
    finally:
        sweep()


def main(job: Dict[str, Any]) -> None:
    """Runs a job {"marker", "seconds", "root", "known", "probes"}, or a job of measuring/schedule.py, which also has "workloads".

    A job of measuring/again.py has a "change", too; one with "inherited" only reports what this process inherited. If "more" is
    true, each time that all probes have answered, a line with the names of further ones is read, until one is empty.

    Replies go to the original fd 1; from here on, prints go to fd 2.
    """
    channel = Channel(os.dup(1), job["marker"])
    os.dup2(2, 1)
    # if the parent process ignores SIGCHLD, this process would not learn how its children end
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel.send(hello=sys.version_info[:3], folder=job["folder"], pid=os.getpid())
    try:
        if "inherited" in job:
            channel.send(inherited=inherited())
        elif "change" in job:
            from gpudoctor.worker.measuring import again

            again.main(job, channel)
        elif "workloads" in job:
            from gpudoctor.worker.measuring import schedule

            schedule.main(job, channel.send)
        else:
            _ask(job, channel)
    finally:
        channel.send(end=True)
