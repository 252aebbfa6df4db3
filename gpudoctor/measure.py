"""Measure: runs a plan in the target and keeps the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpudoctor import protocol
from gpudoctor.interpreter import Target
from gpudoctor.model import Reply
from gpudoctor.planning import Plan

SECONDS = {"standard": 240, "full": 1200}  # for all measurements together
PATIENCE_SECONDS = 8  # time for a stopped run to return its results

Seen = Mapping[str, Mapping[str, float]]
Progress = Callable[[tuple[str, ...], float, Seen], None]
"""Called with what runs, the seconds left, and for a long load the last sample of each GPU."""


def measure(
    where: Target,
    plan: Plan,
    level: str,
    seconds: float,
    progress: Progress,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[dict[str, Reply], int]:
    """Runs the plan in the target. Returns the results, and the signal (0: none) that stopped it.

    options: for a long load, workload -> what it is asked to do.
    """
    measured: dict[str, Reply] = {"plan": Reply("ok", plan.as_value())}
    if not plan.gpus or not plan.workloads:
        return measured, 0

    heard: dict[str, Any] = {}

    def hear(message: dict[str, Any]) -> None:
        heard.update(message)
        if "measured" in message:
            measured[message["measured"]] = protocol.reply(message)
        if "running" in message:
            progress(tuple(message["running"]), message.get("left", 0.0), message.get("seen", {}))

    start = time.monotonic()
    job: dict[str, Any] = {"workloads": tuple(plan.workloads), "gpus": plan.gpus, "level": level, "seconds": seconds}
    if options:
        job |= {"options": options, "is_long": True}
    signal_number = where.run(job, hear, patience=PATIENCE_SECONDS)
    measured["plan"] = Reply("ok", plan.as_value(), seconds=round(time.monotonic() - start, 2))
    if not signal_number and "end" not in heard:  # on some GPUs a workload may be missing that others have
        measured["all-measurements:all"] = Reply("died", None, "the process that runs them ended early")
    for id in missing(plan, measured):
        measured[id] = Reply("cut", None, "the run was interrupted")
    return measured, signal_number


def missing(plan: Plan, measured: Iterable[str]) -> list[str]:
    """Workloads without any result: the process that ran them was killed."""
    told = {id.rpartition(":")[0] for id in measured}
    return [f"{name}:all" for name in plan.workloads if name not in told]
