"""What is said with one node, whatever carries it: a shell there finds a Python, which runs one job after the other.

It is the shell of containers (containers/target/serve.sh): nothing is installed or copied, and nothing is left behind.
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from gpudoctor import planning, protocol
from gpudoctor.bootstrap import of_job, travelling_sources
from gpudoctor.collect import snapshot
from gpudoctor.containers.target import inside, shell
from gpudoctor.doctor import Checks
from gpudoctor.errors import UserError
from gpudoctor.measure import Measuring
from gpudoctor.model import Reply, Snapshot

MOST_BYTES = 32 << 20  # that one node may send
MOST_BEFORE = 1 << 20  # of it before its shell has started: words of welcome
REDUCED = "the node has no Python 3.8+"


@dataclass(frozen=True)
class Asked:
    """What each node is asked. seconds: for all questions; measure_seconds: for all measurements. python: "" for its own."""

    checks: Checks
    level: str
    seconds: float = 20
    measure_seconds: float = 240
    python: str = ""
    force: bool = False
    expected: Mapping[str, int] = field(default_factory=dict)
    ignored: dict[str, dict[str, str]] = field(default_factory=dict)


@cache
def _sources() -> dict[str, str]:
    return travelling_sources()


class Conversation:
    """Takes the lines of a node, and returns what to answer. is_done: nothing more is asked."""

    def __init__(self, asked: Asked) -> None:
        self.marker = secrets.token_hex(8)
        self.is_done = False
        self.has_flooded = False
        self.has_greeted = False
        self.doing = ""
        self.replies: dict[str, Reply] = {}
        self._asked = asked
        self._prefix = self.marker.encode()
        self._size = 0
        self._shown: list[bytes] | None = None
        self._measuring: Measuring | None = None
        self._hear: Callable[[dict[str, Any]], bytes] = self._greeted

    @property
    def command(self) -> str:
        """What the node's shell runs."""
        return shlex.join(["sh", *inside.shell(self.marker, self._asked.python)])

    @property
    def first(self) -> bytes:
        """What is asked first if there is a Python."""
        return self._job(self._collecting)

    @property
    def _collecting(self) -> dict[str, Any]:
        return {"seconds": self._asked.seconds, "known": {}}

    def said(self, line: bytes) -> bytes:
        """A line of the node's output. Returns what is to be written to its input."""
        self._size += len(line) + 1
        if self._size > (MOST_BYTES if self.has_greeted else MOST_BEFORE):
            self.has_flooded = self.has_flooded or not self.is_done
            return b""
        if self.is_done:
            return b""
        if self._shown is not None:
            self._shown.append(line)
        _, marked, rest = line.partition(self._prefix)
        message = protocol.message(rest) if marked else {}
        return self._hear(message) if message else b""

    @property
    def has_heard(self) -> bool:
        return self._size > 0

    def answers(self) -> Snapshot | None:
        """What was answered so far."""
        if not self.replies:
            return None
        taken = snapshot(self.replies, self._asked.expected)
        measured = self._measuring.ended() if self._measuring else {}
        return replace(taken, measured=measured, level=self._asked.level, ignored=self._asked.ignored)

    def _greeted(self, message: dict[str, Any]) -> bytes:
        if "python" not in message:
            return b""
        self.has_greeted = True
        if not message["python"]:
            self._shown, self._hear = [], self._looked
            return b"look " + " ".join(shell.FILES).encode() + b"\n"
        self.doing, self._hear = "collecting", self._collected
        return self.first

    def _job(self, job: dict[str, Any]) -> bytes:
        whole = {"sources": of_job(job, _sources()), **job, "marker": self.marker}
        return b"job\n" + json.dumps(whole).encode() + b"\n"

    def _looked(self, message: dict[str, Any]) -> bytes:
        if "ended" in message:
            assert self._shown is not None
            self.replies = shell.replies_of(self._shown, self.marker)
            self.is_done, self._shown = True, None
        return b""

    def _collected(self, message: dict[str, Any]) -> bytes:
        if "question" in message and message["question"] not in self.replies:  # the first answer counts
            self.replies[message["question"]] = protocol.reply(message)
        if "ended" not in message:
            return b""
        return self._measure() if self.replies else self._end()

    def _measure(self) -> bytes:
        taken = snapshot(self.replies, self._asked.expected)
        try:
            plan = planning.plan(taken, self._asked.checks, (), self._asked.force)
        except UserError:
            return self._end()
        if not plan.workloads:
            return self._end()
        self._measuring = Measuring(plan, self._asked.level, self._asked.measure_seconds)
        if not self._measuring.is_needed:
            return self._end()
        self.doing, self._hear = "measuring", self._measured
        return self._job(self._measuring.job)

    def _measured(self, message: dict[str, Any]) -> bytes:
        assert self._measuring
        if message.get("measured") not in self._measuring.measured:
            self._measuring.hear(message)
        return self._end() if "ended" in message else b""

    def _end(self) -> bytes:
        self.is_done = True
        return b""
