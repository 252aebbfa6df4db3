"""What was watched as a snapshot, and the checks that judge it."""

from __future__ import annotations

from datetime import datetime, timezone

from gpudoctor import catalog
from gpudoctor.facts.job.watched import QUESTION
from gpudoctor.model import SNAPSHOT_SCHEMA, Reply, Snapshot
from gpudoctor.version import __version__

CHECKS = "watched-"


def of(reply: Reply) -> Snapshot:
    taken = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Snapshot(SNAPSHOT_SCHEMA, __version__, taken, {QUESTION: reply}, level="quick")


def checks() -> frozenset[str]:
    """Those of what was watched."""
    return frozenset(id for id in catalog.checks() if id.startswith(CHECKS))
