"""Runs in the target: asks every probe in a process of its own, side by side, and streams the replies.

This file travels (standard library only, Python 3.8). target.py starts it with a job and reads what comes back: lines of
JSON behind a marker on a private descriptor, so that nothing a library prints can spoil them. A probe that crashes or
hangs takes only its own question with it.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import selectors
import signal
import sys
import time
import traceback
from typing import Any, Dict, List, Optional, Tuple

from gpudoctor.model import Reply
from gpudoctor.probes import PROBES, Probe
from gpudoctor.probes.machine import Machine

RETRIES = 3  # how often a probe that died is asked again, without the step that killed it
GRACE_SECONDS = 0.3  # how long a killed process may take to go; in a driver call it may never


class Channel:
    """The way back: lines of JSON behind the job's marker."""

    def __init__(self, descriptor: int, marker: str) -> None:
        self.descriptor = descriptor
        self.marker = marker.encode()

    def send(self, **message: Any) -> None:
        data = self.marker + json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        while data:
            data = data[os.write(self.descriptor, data) :]


class Asking:
    """One probe being asked by a child process."""

    def __init__(self, probe: Probe, root: str, known: Dict[str, Reply], deadline: float, skip: Tuple[str, ...]) -> None:
        self.probe = probe
        self.skip = skip
        self.started = time.monotonic()
        self.deadline = min(self.started + probe.seconds, deadline)
        self.buffer = b""
        self.note = mmap.mmap(-1, 1024)  # shared with the child: what it is asking just now
        self.pipe, inlet = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            self._ask(Machine(root, known, self._at, skip), inlet)
        os.close(inlet)

    def _at(self, question: str, step: str) -> None:
        text = (question + "\0" + step).encode("utf-8", "replace")[: len(self.note) - 1]
        self.note[: len(text) + 1] = text + b"\n"

    def _ask(self, machine: Machine, inlet: int) -> None:
        """The child's whole life."""
        code = 1
        try:
            os.setsid()
            with open(inlet, "w", encoding="utf-8", errors="replace") as outlet:
                for question, reply in self.probe.ask(machine):
                    outlet.write(json.dumps([question, vars(reply)], ensure_ascii=False) + "\n")
                    outlet.flush()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def at(self) -> Tuple[str, str]:
        """The question, and the step of it, that the child asked last."""
        text = bytes(self.note).split(b"\n", 1)[0].decode("utf-8", "replace").strip("\0")
        question, _, step = text.partition("\0")
        return question, step

    def replies(self) -> Optional[List[Tuple[str, Reply]]]:
        """What has come since the last call; None at the end."""
        data = os.read(self.pipe, 1 << 16)
        if not data:
            return None
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        return [(question, Reply(**reply)) for question, reply in map(json.loads, lines)]

    def kill(self) -> str:
        """Ends the child with all that it started, and says how it ended: "" for a clean exit."""
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        manner = self.wait()
        return "it cannot be killed: it is stuck in the kernel (state D)" if manner is None else manner

    def end(self) -> str:
        """As kill, for a child that has said its last word and may go by itself."""
        manner = self.wait()
        return self.kill() if manner is None else manner

    def wait(self) -> Optional[str]:
        """How the child ended; None if it has not within the grace."""
        end = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return _manner_of_death(status)
            time.sleep(0.002)
        return None

    def close(self) -> None:
        os.close(self.pipe)


def _manner_of_death(status: int) -> str:
    if os.WIFSIGNALED(status):
        return "killed by " + signal.Signals(os.WTERMSIG(status)).name
    return "exit code %d" % os.WEXITSTATUS(status) if os.WEXITSTATUS(status) else ""


class Round:
    """All probes, side by side, until the last has answered or the time is up."""

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
            while self.running:
                nearest = min(asking.deadline for asking in self.running.values())
                for key, _ in self.selector.select(max(0.0, nearest - time.monotonic())):
                    self.listen(key.data)
                for asking in [a for a in self.running.values() if a.deadline <= time.monotonic()]:
                    self.give_up(asking)
                self.start_ready()
        finally:
            for asking in self.running.values():
                asking.kill()

    def start_ready(self) -> None:
        done = set(self.running) | {probe.name for probe in self.waiting}
        ready = [probe for probe in self.waiting if probe.after not in done]
        for probe in ready:
            self.waiting.remove(probe)
            self.start(probe)
        if ready:
            self.tell()

    def start(self, probe: Probe, skip: Tuple[str, ...] = ()) -> None:
        asking = Asking(probe, self.root, self.known, self.deadline, skip)
        self.running[probe.name] = asking
        self.selector.register(asking.pipe, selectors.EVENT_READ, asking)

    def listen(self, asking: Asking) -> None:
        replies = asking.replies()
        if replies is None:
            self.finish(asking)
            return
        for question, reply in replies:
            self.keep(question, reply)

    def finish(self, asking: Asking) -> None:
        manner = asking.end()
        self.remove(asking)
        question, step = asking.at()
        if manner and step and step not in asking.skip and len(asking.skip) < RETRIES:
            self.start(asking.probe, (*asking.skip, step))
        elif manner:
            self.record(asking, "died", "%s in %s" % (manner, step or question or "its first question"))
        else:
            self.record(asking, "ok", "")

    def give_up(self, asking: Asking) -> None:
        manner = asking.kill()
        seconds = time.monotonic() - asking.started
        detail = "no answer in %.1f s from %s" % (seconds, asking.at()[1] or asking.at()[0] or "its first question")
        self.remove(asking)
        self.record(asking, "timeout", detail + ("; " + manner if "state D" in manner else ""))

    def record(self, asking: Asking, status: str, detail: str) -> None:
        reply = Reply(status, None, detail, round(time.monotonic() - asking.started, 4))
        question = asking.at()[0]
        if status != "ok" and question:
            self.keep(question, reply)
        self.keep("probe:" + asking.probe.name, reply)
        self.tell()

    def remove(self, asking: Asking) -> None:
        self.selector.unregister(asking.pipe)
        asking.close()
        del self.running[asking.probe.name]

    def keep(self, question: str, reply: Reply) -> None:
        self.known[question] = reply
        self.channel.send(question=question, reply=vars(reply))

    def tell(self) -> None:
        self.channel.send(asking=sorted(self.running))


def main(job: Dict[str, Any]) -> None:
    """Does a job {"marker", "seconds", "root"}; fd 1 is the way back, and from here on prints go to fd 2."""
    channel = Channel(os.dup(1), job["marker"])
    os.dup2(2, 1)
    channel.send(hello=sys.version_info[:3], folder=job["folder"])
    Round(channel, job.get("root", "/"), job["seconds"], PROBES).run()
    channel.send(end=True)
