"""The results of the workloads, by workload and GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpudoctor.facts.guarded import Guarded
from gpudoctor.model import Reply, Skip, Unavailable

# Entries that are not workloads: the plan, imports of frameworks, error counters, the sampler's history, what was watched.
_NOT_WORKLOADS = ("plan", "import", "counters", "history", "sampler", "watch")
_KINDS = {"missing": Skip.NOT_INSTALLED, "cut": Skip.CUT_OFF}
_SAYS_MORE = {"died", "timeout", "stopped", "error"}


@dataclass(frozen=True)
class Run:
    """One workload on one GPU (NVML's index), or on all together (None): its results by name.

    during: each result has what the sampler saw meanwhile under "during".
    """

    workload: str
    gpu: int | None
    values: Mapping[str, Any]
    seconds: float


@dataclass(frozen=True)
class Failure:
    """A workload that did not finish: died, timeout, stopped (SIGSTOP) or error (it raised an exception)."""

    workload: str
    gpu: int | None
    status: str
    detail: str
    prints: str
    recorded: str = ""

    @property
    def words(self) -> str:
        """All that the program printed, its error once."""
        return said(self.detail, self.prints)

    @property
    def signal(self) -> str:
        return signal_of(self.detail)


def said(detail: str, prints: str) -> str:
    """An error and the output of its program; most outputs end with the error."""
    error = detail.partition(" in ")[0]
    return prints if error and error in prints else f"{prints}\n{detail}".strip()


def signal_of(detail: str) -> str:
    """The signal that killed a process: SIGSEGV; "" for none."""
    killed = re.search(r"killed by (SIG\w+)", detail)
    return killed[1] if killed else ""


class Measured(Guarded):
    """The results; a workload without a result raises Unavailable with the reason."""

    def __init__(self, measured: Mapping[str, Reply]) -> None:
        self._measured = measured
        self._runs: dict[str, tuple[Run, ...]] = {}

    def runs(self, workload: str) -> tuple[Run, ...]:
        """The results of this workload on each GPU, including runs that were stopped after a first result."""
        if workload in self._runs:
            return self._runs[workload]
        replies = self._of(workload)
        found = [Run(workload, _gpu(id), reply.value, reply.seconds) for id, reply in replies.items() if _results(reply)]
        if not found:
            raise self._why_not(workload, replies)
        self._runs[workload] = runs = tuple(sorted(found, key=lambda run: -1 if run.gpu is None else run.gpu))
        return runs

    def _of(self, workload: str) -> dict[str, Reply]:
        return self._by_workload.get(workload, {})

    @cached_property
    def _by_workload(self) -> dict[str, dict[str, Reply]]:
        found: dict[str, dict[str, Reply]] = {}
        for id, reply in self._measured.items():
            found.setdefault(id.rpartition(":")[0], {})[id] = reply
        return found

    def _why_not(self, workload: str, replies: Mapping[str, Reply]) -> Skip:
        for reply in replies.values():
            if reply.status in _SAYS_MORE:
                return Unavailable(f"{workload} did not finish: see measurements")
            kind = str(reply.value.get("kind") or "") if isinstance(reply.value, dict) else ""
            return Unavailable(reply.detail or reply.status, kind or _KINDS.get(reply.status, Skip.NO_ANSWER))
        if self.not_measured:
            return Unavailable("; ".join(dict.fromkeys(self.not_measured.values())), self.plan.get("kind", Skip.BUSY))
        return Unavailable("not measured in this run", Skip.NOT_MEASURED)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The planned measurements; Unavailable if there were none, as at level quick."""
        if "plan" not in self._measured:
            raise Unavailable("no GPU was measured in this run", Skip.NOT_MEASURED)
        reply = self._measured["plan"]
        if not reply.value or not isinstance(reply.value.get("gpus"), list):
            raise Unavailable(f"plan: {reply.detail or reply.status}", Skip.NO_ANSWER)
        plan: dict[str, Any] = reply.value
        return plan

    @property
    def total_seconds(self) -> float:
        """How long all measurements took, with GPUs in parallel."""
        return self._measured["plan"].seconds if "plan" in self._measured else 0.0

    @cached_property
    def spent(self) -> Mapping[str, float]:
        """Seconds of each workload and import, the longest first. Imports and GPUs run at the same time."""
        found: dict[str, float] = {}
        for id, reply in self._measured.items():
            if _is_workload(id):
                name = id.rpartition(":")[0]
                found[name] = max(found.get(name, 0.0), reply.seconds)
        for name, reply in self.imports.items():
            found[f"import {name}"] = (reply.value or {}).get("seconds", 0.0)
        return {name: found[name] for name in sorted(found, key=lambda name: -found[name]) if found[name]}

    def seconds(self, workloads: Iterable[str]) -> float:
        """How long some workloads took, with GPUs in parallel."""
        each = (map(self._own_seconds, self._of(name)) for name in workloads)
        return round(sum(max(found, default=0.0) for found in each), 3)

    def _own_seconds(self, id: str) -> float:
        """A run on all GPUs without the time of other workloads: older snapshots count from when the run was prepared."""
        name, seconds = id.rpartition(":")[0], self._measured[id].seconds
        for ran in self._ran if _gpu(id) is None else ():
            if name in ran:
                began, ended = ran[name]
                others = [until for other, (_, until) in ran.items() if other != name and until <= began]
                seconds = min(seconds, ended - max(others, default=0.0))
        return seconds

    @cached_property
    def _ran(self) -> list[dict[str, list[float]]]:
        """For each GPU: workload -> when it began and ended, in seconds since the start."""
        histories = [reply.value for id, reply in self._measured.items() if id.startswith("history:")]
        return [history.get("workloads", {}) for history in histories if isinstance(history, dict)]

    @property
    def not_measured(self) -> dict[int, str]:
        """GPU -> why it was not measured."""
        return {int(gpu): why for gpu, why in self.plan["left_alone"].items()}

    @cached_property
    def count(self) -> int:
        return sum(reply.status == "ok" for id, reply in self._measured.items() if _is_workload(id))

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """Every workload that crashed, hung or raised."""
        return tuple(
            Failure(id.rpartition(":")[0], _gpu(id), reply.status, reply.detail, *_texts(reply))
            for id, reply in self._measured.items()
            if _is_workload(id) and reply.status in _SAYS_MORE
        )

    @cached_property
    def cut(self) -> tuple[str, ...]:
        """What a run that was stopped early left out."""
        return tuple(id for id, reply in self._measured.items() if reply.status == "cut")

    def stopped_by(self, workloads: Iterable[str]) -> dict[str, float]:
        """Why long loads were stopped before their time, to protect the machine -> after how many seconds."""
        found: dict[str, float] = {}
        guarded = (reply for name in workloads for reply in self._of(name).values() if reply.status == "guarded")
        for reply in guarded:
            reason = reply.detail.removesuffix(" before this began")
            found[reason] = max(found.get(reason, 0.0), reply.seconds)
        return found

    @cached_property
    def imports(self) -> dict[str, Reply]:
        """Framework -> the result of its import."""
        prefix = "import:"
        return {id[len(prefix) :]: reply for id, reply in self._measured.items() if id.startswith(prefix)}

    @cached_property
    def loaded(self) -> dict[str, list[str]]:
        """Framework -> the GPU libraries that its import loaded; without those of older versions of gpudoctor."""
        found = {name: (reply.value or {}).get("libraries") for name, reply in self.imports.items() if reply.status == "ok"}
        return {name: [path for path in paths if path] for name, paths in found.items() if paths}

    @cached_property
    def counters(self) -> dict[int, dict[str, dict[str, int]]]:
        """GPU -> "before" and "after" -> error counter -> value."""
        prefix = "counters:gpu"
        return {int(id[len(prefix) :]): reply.value or {} for id, reply in self._measured.items() if id.startswith(prefix)}

    @cached_property
    def watched(self) -> dict[str, Any]:
        """ "all" and "gpu0": what was watched during a long load; Unavailable if nothing was."""
        prefix = "watch:"
        found = {id[len(prefix) :]: reply.value for id, reply in self._measured.items() if id.startswith(prefix)}
        if not found:
            raise Unavailable("nothing was watched under load", Skip.NOT_MEASURED)
        return found


def _is_workload(id: str) -> bool:
    return id.partition(":")[0] not in _NOT_WORKLOADS


def _texts(reply: Reply) -> tuple[str, str]:
    """What it printed, and what the system recorded meanwhile."""
    value = reply.value or {}
    return value.get("prints", ""), value.get("recorded", "")


def _results(reply: Reply) -> bool:
    return isinstance(reply.value, dict) and not set(reply.value) <= {"prints", "recorded", "kind"}


def _gpu(id: str) -> int | None:
    where = id.rpartition(":")[2]
    return None if where == "all" else int(where.removeprefix("gpu"))
