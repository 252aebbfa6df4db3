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
from gpudoctor.interpreter import MOST_WORDS, Target
from gpudoctor.model import SNAPSHOT_SCHEMA, Reply, Snapshot
from gpudoctor.version import __version__
from gpudoctor.worker.probes.table import DEEP

Progress = Callable[[tuple[str, ...]], None]

LIMITS = (
    ("Resource temporarily unavailable", resource.RLIMIT_NPROC, "processes and threads (ulimit -u)"),
    ("Too many open files", resource.RLIMIT_NOFILE, "open files (ulimit -n)"),
)
# A container and its host are asked in two threads, and msgspec crashes if both decode the same type for the first time.
LOADING = threading.Lock()


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
    replies: dict[str, Reply] = {}

    def hear(message: dict[str, Any]) -> None:
        if "question" in message:
            replies[message["question"]] = protocol.reply(message)
        if "asking" in message:
            progress(tuple(message["asking"]))

    job: dict[str, Any] = {"seconds": seconds, "known": dict(known or {})}
    where.run({**job, "probes": list(probes)} if probes else job, hear, meanwhile=_load_what_judges)
    if not replies:
        reason = where.said().rpartition("\n")[2][:MOST_WORDS]
        raise WorkError(f"{where.path} started but did not answer{reason and f': {reason}'}{_limit(reason)}")
    taken = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Snapshot(SNAPSHOT_SCHEMA, __version__, taken, replies, dict(expected))


def _limit(reason: str) -> str:
    """The limit that an error of fork or open means, as the end of a sentence."""
    for error, limit, words in LIMITS:
        soft = resource.getrlimit(limit)[0]
        if error in reason and soft != resource.RLIM_INFINITY:
            return f". The limit on {words} is {soft}: raise it first"
    return ""


def deeper(where: Target, answers: Snapshot, progress: Progress) -> Snapshot:
    """With what is asked only at level full."""
    replies = dict(answers.replies)

    def hear(message: dict[str, Any]) -> None:
        if "question" in message:
            replies[message["question"]] = protocol.reply(message)
        if "asking" in message:
            progress(tuple(message["asking"]))

    where.run({"seconds": max(probe.seconds for probe in DEEP), "probes": [probe.name for probe in DEEP]}, hear)
    return replace(answers, replies=replies)


def _load_what_judges() -> None:
    """Loads the judging code (a quarter of a second) while the machine already answers."""
    with LOADING:
        from gpudoctor import catalog, doctor  # noqa: F401

        catalog.checks()
