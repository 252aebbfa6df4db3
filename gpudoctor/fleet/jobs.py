"""Carries conversations to the nodes of a Kubernetes cluster: one Job for what is sent, its log for what is answered.

What a node is asked first is known before it has said that it has a Python: it is sent at once, as each Job takes seconds.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpudoctor import screen
from gpudoctor.containers.target import inside
from gpudoctor.fleet.cluster import API, NOT_PLACED, OF_CLUSTER, Cluster, GpuNode, Place, Refusal, ended_by, waits_for
from gpudoctor.fleet.conversation import Asked, Conversation
from gpudoctor.fleet.how import Counts, Done, How
from gpudoctor.fleet.model import State

POLL_SECONDS = 1.0
ENDED = ("Succeeded", "Failed")
NO_POD, DELETED = "the pod was not created", "its Job was deleted"


@dataclass
class _Talk:
    node: GpuNode
    talk: Conversation
    job: str
    sent: bytes
    until: float
    waits: str = ""
    had_pod: bool = False
    failed: str = ""


class Jobs:
    """One run on a cluster."""

    def __init__(self, place: Place) -> None:
        self._cluster = Cluster(place, secrets.token_hex(4))
        self._found = self._cluster.nodes()
        self._number = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes with GPUs."""
        return tuple(name for name, node in self._found.items() if node.gpus)

    def ask(self, names: Sequence[str], asked: Asked, how: How, done: Done, tell: Callable[[str], None]) -> None:
        """Same as engine.ask."""
        counts, waiting = Counts(len(names)), list(reversed(names))
        running: dict[str, _Talk] = {}
        failed = None
        try:
            while waiting or running:
                while waiting and len(running) < how.fanout:
                    self._begin(waiting.pop(), asked, how, done, counts, running)
                tell(counts.words())
                if running:
                    time.sleep(POLL_SECONDS)
                    self._look(running, asked, how, done, counts)
        except Refusal as failure:
            if not counts.done:
                raise
            failed = failure
        finally:
            self._remove([each.job for each in running.values()])
        if failed:  # what others answered before is worth a report
            for name in (*running, *waiting):
                done(name, None, State.INTERRUPTED, str(failed))

    def _remove(self, jobs: Sequence[str]) -> None:
        left = 0
        for job in jobs:
            try:
                self._cluster.remove(job)
            except Refusal:
                left += 1
        if left:
            said = "1 Job could not be removed and ends" if left == 1 else f"{left} Jobs could not be removed and end"
            screen.note(f"{said} by its time limit: {self._cluster.removal}")

    def _begin(self, name: str, asked: Asked, how: How, done: Done, counts: Counts, running: dict[str, _Talk]) -> None:
        node = self._found.get(name)
        if node is None or node.ready:
            counts.done += 1
            counts.silent += 1
            done(name, None, State.UNREACHABLE, node.ready if node else "the cluster has no such node")
            return
        talk = Conversation(asked)
        running[name] = _Talk(node, talk, "", talk.first, time.monotonic() + how.seconds)
        counts.running += 1
        self._start(running[name], asked, how)

    def _start(self, each: _Talk, asked: Asked, how: How) -> None:
        self._number += 1
        each.job, each.had_pod = self._cluster.name(self._number), False
        arguments = inside.shell(each.talk.marker, asked.python)
        try:
            self._cluster.start(each.job, each.node, arguments, each.sent, how.seconds)
        except Refusal as failure:
            if not failure.passes:
                raise
            each.failed = str(failure)

    def _look(self, running: dict[str, _Talk], asked: Asked, how: How, done: Done, counts: Counts) -> None:
        missed = ""
        pods: dict[str, dict[str, Any]] = {}
        try:
            pods = self._cluster.pods()
        except Refusal as failure:
            if not failure.passes:
                raise
            missed = str(failure)
        for name, each in list(running.items()):
            pod = pods.get(each.job)
            is_late = time.monotonic() > each.until
            was_deleted = each.had_pod and pod is None and not missed
            if pod:
                each.had_pod, each.waits = True, waits_for(pod)
            else:
                each.waits = missed or (DELETED if was_deleted else NO_POD)
            each.waits = each.failed or each.waits
            has_ended = was_deleted or bool(each.failed) or bool(pod and pod["status"].get("phase") in ENDED)
            if not (has_ended or is_late):
                continue
            following = self._read(each, pod["metadata"]["name"]) if pod and not each.waits else b""
            each.waits = (ended_by(pod) if pod else "") or each.waits  # a pod that never ran has no log
            if each.waits == NO_POD:
                each.waits = ": ".join(filter(None, (NO_POD, self._cluster.why_no_pod(each.job))))
            self._remove([each.job])
            if following and has_ended and not is_late:
                each.sent = following
                self._start(each, asked, how)
                continue
            del running[name]
            counts.running -= 1
            counts.done += 1
            answers = each.talk.answers()
            counts.silent += answers is None
            done(name, answers, *self._state(each, answers is not None, is_late))

    def _read(self, each: _Talk, pod: str) -> bytes:
        """Hears the log. Returns what is to be sent next, if it is not what was sent already."""
        following = b""
        try:
            for line in self._cluster.lines(pod):
                answer = each.talk.said(line)
                following = answer if answer and answer != each.sent else following
        except Refusal as failure:
            each.waits = str(failure)
        return following

    def _state(self, each: _Talk, has_answers: bool, is_late: bool) -> tuple[State, str]:
        if each.talk.is_done and has_answers:
            return State.ANSWERED, ""
        if each.talk.has_flooded:
            return State.FLOODED, ""
        if has_answers:
            early = f"the Job ended early ({each.waits})" if each.waits else "the Job ended early"
            return State.PARTIAL, "time limit reached" if is_late else early
        if each.waits.startswith((API, DELETED)):  # which says nothing about the node
            return State.INTERRUPTED, each.waits
        if each.waits.startswith((NO_POD, NOT_PLACED, *OF_CLUSTER)):
            return State.BUSY, each.waits
        return (State.TIMED_OUT, each.waits or "the Job did not end") if is_late else (State.FAILED, each.waits or "no output")
