"""Collect: turns all answers of a machine into a snapshot."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from gpudoctor import protocol
from gpudoctor.errors import WorkError
from gpudoctor.interpreter import MOST_WORDS, Interpreter, NoProcess, NoRoom, Target
from gpudoctor.model import SNAPSHOT_SCHEMA, Check, Reply, Snapshot
from gpudoctor.version import __version__
from gpudoctor.worker.child import Channel
from gpudoctor.worker.probes.table import DEEP, PROBES

Progress = Callable[[tuple[str, ...]], None]

LIMITS = (
    ("Resource temporarily unavailable", resource.RLIMIT_NPROC, "processes and threads (ulimit -u)"),
    ("Too many open files", resource.RLIMIT_NOFILE, "open files (ulimit -n)"),
)
# A container and its host are asked in two threads, and msgspec crashes if both decode the same type for the first time.
LOADING = threading.Lock()
OF_MACHINE = ("system", "pci", "devices", "container", "limits", "environment", "wsl", "kernel-log", "runtime")
ALONE_SECONDS = 10.0
REFUSED, NO_ROOM = "refused-processes", "no-temporary-folder"


def collect(
    where: Target,
    seconds: float,
    expected: Mapping[str, int],
    progress: Progress,
    known: Mapping[str, str] | None = None,
    probes: Collection[str] = (),
) -> Snapshot:
    """Asks the target everything; questions not answered within `seconds` are recorded as such in the snapshot.

    known: facts that are passed to the probes. probes: the only ones that ask; () is all.
    """
    job: dict[str, Any] = {"seconds": seconds, "known": dict(known or {})}
    replies, hear = _heard(progress)
    try:
        where.run({**job, "probes": list(probes)} if probes else job, hear, meanwhile=_load_what_judges)
    except NoProcess as refused:
        replies.update({**_of_this_process(), REFUSED: Reply("ok", str(refused).rpartition(": ")[2])})
    except NoRoom as refused:
        replies.update({**_of_this_process(), NO_ROOM: Reply("ok", str(refused))})
    return _snapshot(where, replies, expected)


def collect_needed(
    where: Interpreter,
    seconds: float,
    expected: Mapping[str, int],
    progress: Progress,
    checks: Callable[[], Mapping[str, Check]],
    as_judged: Callable[[Snapshot], Snapshot],
) -> Snapshot:
    """Asks only what these checks read. checks: called while the first probes ask. as_judged: adds what is not asked, such as a
    baseline."""
    from gpudoctor import needed

    asked: set[str] = set(needed.FIRST)
    replies, hear = _heard(progress)

    def more() -> list[str]:
        found = needed.further(asked, as_judged(_snapshot(where, replies, expected)), checks())
        asked.update(found)
        return found

    def load() -> None:
        with LOADING:
            checks()

    where.run({"seconds": seconds, "known": {}, "probes": sorted(asked)}, hear, meanwhile=load, more=more)
    return _snapshot(where, {**replies, **needed.not_collected(asked)}, expected)


def _of_this_process() -> dict[str, Reply]:
    """The replies of the probes that need neither the examined Python nor a driver, asked in this process."""
    from gpudoctor.worker import main

    asking = main.Round(_Nowhere(), "/", ALONE_SECONDS, tuple(probe for probe in PROBES if probe.name in OF_MACHINE))
    asking.run()
    return {name: Reply(reply.status, reply.value, reply.detail, reply.seconds) for name, reply in asking.known.items()}


class _Nowhere(Channel):
    """A channel without a reader."""

    def __init__(self) -> None:
        super().__init__(-1)

    def send(self, **message: Any) -> None:
        pass


def _heard(progress: Progress) -> tuple[dict[str, Reply], Callable[[dict[str, Any]], None]]:
    """Replies, and what adds those of a message."""
    replies: dict[str, Reply] = {}

    def hear(message: dict[str, Any]) -> None:
        if "question" in message:
            replies[message["question"]] = protocol.reply(message)
        if "asking" in message:
            progress(tuple(message["asking"]))

    return replies, hear


def _snapshot(where: Target, replies: dict[str, Reply], expected: Mapping[str, int]) -> Snapshot:
    if not replies:
        reason = where.said().rpartition("\n")[2][:MOST_WORDS]
        raise WorkError(f"{where.path} started but did not answer{reason and f': {reason}'}{_limit(reason)}")
    return snapshot(replies, expected)


def snapshot(replies: dict[str, Reply], expected: Mapping[str, int]) -> Snapshot:
    """Of answers that arrived now."""
    taken = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Snapshot(SNAPSHOT_SCHEMA, __version__, taken, replies, dict(expected))


def _limit(reason: str) -> str:
    """The limit that an error of fork or open means, as the end of a sentence."""
    for error, limit, words in LIMITS:
        soft = resource.getrlimit(limit)[0]
        if error in reason and soft != resource.RLIM_INFINITY:
            return f". The limit on {words} is {soft}: raise it first"
    return ""


def deeper(where: Target, answers: Snapshot, progress: Progress, names: Collection[str]) -> Snapshot:
    """With what is asked only by name."""
    replies, hear = _heard(progress)
    where.run({"seconds": max(probe.seconds for probe in DEEP), "probes": list(names)}, hear)
    return replace(answers, replies={**answers.replies, **replies})


def _load_what_judges() -> None:
    """Loads the judging code (a quarter of a second) while the machine already answers."""
    with LOADING:
        from gpudoctor import catalog, doctor  # noqa: F401

        catalog.checks()
