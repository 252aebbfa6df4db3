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
    work = Measuring(plan, level, seconds, progress, options)
    if not work.is_needed:
        return work.measured, 0
    signal_number = where.run(work.job, work.hear, patience=PATIENCE_SECONDS)
    return work.ended(signal_number), signal_number


class Measuring:
    """A plan while it runs. job: what is sent to the worker, whose messages `hear` takes."""

    def __init__(
        self,
        plan: Plan,
        level: str,
        seconds: float,
        progress: Progress = lambda running, left, seen: None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.measured: dict[str, Reply] = {"plan": Reply("ok", plan.as_value())}
        self.is_needed = bool(plan.gpus and plan.workloads)
        self.job: dict[str, Any] = {"workloads": tuple(plan.workloads), "gpus": plan.gpus, "level": level, "seconds": seconds}
        if options:
            self.job |= {"options": options, "is_long": True}
        self._plan = plan
        self._progress = progress
        self._has_ended = False
        self._start = time.monotonic()

    def hear(self, message: dict[str, Any]) -> None:
        self._has_ended |= "end" in message
        if "measured" in message:
            self.measured[message["measured"]] = protocol.reply(message)
        if "running" in message:
            self._progress(tuple(message["running"]), message.get("left", 0.0), message.get("seen", {}))

    def ended(self, signal_number: int = 0) -> dict[str, Reply]:
        """The results. signal_number: what stopped the run, or 0."""
        self.measured["plan"] = Reply("ok", self._plan.as_value(), seconds=round(time.monotonic() - self._start, 2))
        if not signal_number and not self._has_ended:  # on some GPUs a workload may be missing that others have
            self.measured["all-measurements:all"] = Reply("died", None, "the process that runs them ended early")
        for id in missing(self._plan, self.measured):
            self.measured[id] = Reply("cut", None, "the run was interrupted")
        return self.measured


def missing(plan: Plan, measured: Iterable[str]) -> list[str]:
    """Workloads without any result: the process that ran them was killed."""
    told = {id.rpartition(":")[0] for id in measured}
    return [f"{name}:all" for name in plan.workloads if name not in told]
