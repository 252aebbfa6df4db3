"""A workload on its GPUs: the request to a host, and the reply that results."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from gpudoctor.worker.measuring import bench, cgroup_events, settings
from gpudoctor.worker.measuring.bench import ONCE, TOGETHER, Workload
from gpudoctor.worker.measuring.fork_server import Request, last_words
from gpudoctor.worker.measuring.sampler import Sampler
from gpudoctor.worker.reply import Reply, Skip

PREPARING_SECONDS = 120  # time limit for a workload that starts early, until it waits for its turn
GRACE_SECONDS = 2.0  # time for a killed workload to exit; in a driver call it may never exit
WITH_LAST_WORDS = ("died", "error", "timeout", "stopped")


@dataclass(frozen=True)
class Gpu:
    """A GPU to measure: its numbers in NVML and CUDA, and the nearby CPU cores."""

    index: int
    ordinal: int
    cores: List[int]


class Task:
    """A workload on one GPU, or on all together."""

    def __init__(
        self, name: str, workload: Workload, gpus: List[Gpu], folder: str, options: Optional[Dict[str, Any]] = None
    ) -> None:
        self.options = options or {}
        self.name = name
        self.workload = workload
        self.gpus = gpus
        self.id = "%s:%s" % (name, "all" if workload.scope == TOGETHER else "gpu%d" % gpus[0].index)
        self.file = os.path.join(folder, self.id.replace(":", "-"))
        self.started = 0.0
        self.ended = 0.0
        self.has_turn = False
        self.deadline = float("inf")
        self.counted = cgroup_events.counters()
        self.verdict = ("", "")  # status and detail, set before the process has ended
        self.status = ""
        self.detail = ""

    def request(self, level: str) -> Request:
        ordinals = [gpu.ordinal for gpu in self.gpus]
        return Request(self.id, self.name, ordinals, level, self.gpus[0].cores, self.file, self.options)

    @property
    def typical_seconds(self) -> float:
        return float(self.workload.typical_seconds + self.options.get("seconds", 0))

    def prepare(self, now: float) -> None:
        """The workload starts before its turn."""
        self.started, self.deadline = now, now + PREPARING_SECONDS

    def begin(self, now: float) -> None:
        """The workload has its turn on the GPUs; its time limit starts now."""
        self.has_turn = True
        self.started, self.deadline = now, now + self._longest()
        bench.touch(self.file + bench.GO)

    def _longest(self) -> float:
        chosen = self.options.get("seconds")
        return self.workload.seconds + chosen if chosen else self.workload.seconds

    def waits(self) -> bool:
        """Whether it is prepared and waits for its turn."""
        return not self.has_turn and os.path.exists(self.file + bench.WAITS)

    def give_up(self, now: float) -> None:
        """The time is up; the workload is about to be killed."""
        self.verdict = ("timeout", "not finished after %.0f s%s" % (now - self.started, self._where()))
        self.deadline = now + GRACE_SECONDS

    def end(self, status: str, detail: str) -> None:
        self.status, self.detail, self.ended = status, detail, time.monotonic()
        settings.remove(self.file)

    def end_as_told(self, manner: str, stopped: bool) -> None:
        """Its process has ended. See the notices of ForkServer."""
        told = bench.read(self.file).end
        status, detail = self.verdict
        if told:
            status = {"skip": "skipped"}.get(told["end"], told["end"])
            detail = told["detail"] + (self._where() if status == "error" else "")
        elif not status:
            status, detail = "died", (manner or "it ended") + self._where() + cgroup_events.since(self.counted)
        elif status == "timeout" and stopped:
            status, detail = "stopped", detail + "; it was stopped from outside (SIGSTOP)"
        self.end(status, detail)

    def _where(self) -> str:
        return " in " + (bench.read(self.file).step or "its first step")

    def measured_until(self) -> float:
        """The end of its last section."""
        return self.window()[1]

    def window(self) -> Tuple[float, float]:
        """From the start of its first section to the end of its last; zeros without sections."""
        windows = bench.read(self.file).windows.values()
        return min((began for began, _ in windows), default=0.0), max((ended for _, ended in windows), default=0.0)

    def reply(self, sampler: Sampler, recorded: Callable[[], str]) -> Reply:
        """All its results, each section with what the sampler saw meanwhile; of a failure also what the system recorded."""
        heard = bench.read(self.file)
        value: Dict[str, Any] = dict(heard.values)
        for name, (began, ended) in heard.windows.items():
            seen = self._during(sampler, began, ended)
            value[name] = dict(value[name], seconds=round(ended - began, 4), **({"during": seen} if seen else {}))
            if sampler.is_long:
                value[name]["began"] = round(began - sampler.began, 2)
        if sampler.is_long:
            value.update(unfinished(heard, sampler.began))
        failed = self.status in WITH_LAST_WORDS
        texts = {
            "prints": last_words(self.file) if failed else "",
            "recorded": recorded() if failed else "",
            "kind": heard.end["kind"] if heard.end else "",
        }
        value.update({name: text for name, text in texts.items() if text})
        return Reply(self.status, value or None, self.detail, round(self.ended - self.started, 3) if self.started else 0.0)

    def _during(self, sampler: Sampler, began: float, ended: float) -> Optional[Dict[str, Any]]:
        """For one GPU, what the sampler saw; for several, by index."""
        seen = {str(gpu.index): sampler.during(gpu.index, began, ended) for gpu in self.gpus}
        known = {index: found for index, found in seen.items() if found}
        return known if self.workload.scope == TOGETHER else next(iter(known.values()), None)


def unfinished(heard: bench.Heard, began: float) -> Dict[str, Any]:
    """The section in which a long load ended early, which has no result: its load, and when it began."""
    name, ends = heard.step, [ended for _, ended in heard.windows.values()]
    if name in heard.windows or not re.match(r"\w+ \d+$", name) or not ends:
        return {}
    return {"unfinished": {"load": name.split()[0], "began": round(max(ends) - began, 2)}}


def planned(
    names: List[str], gpus: List[Gpu], folder: str, send: Callable[..., None], options: Optional[Dict[str, Dict[str, Any]]] = None
) -> Iterator[Task]:
    """The tasks of these workloads. For a workload that cannot have a task, sends the reply instead."""
    for name in names:
        chosen = (options or {}).get(name, {})
        try:
            workload = bench.workload(name)
        except ImportError as failure:  # such as a Python without ctypes
            send(measured=name + ":all", reply=vars(Reply("missing", None, str(failure))))
            continue
        if workload.scope == ONCE:
            yield Task(name, workload, gpus[:1], folder, chosen)
        elif workload.scope != TOGETHER:
            yield from (Task(name, workload, [gpu], folder, chosen) for gpu in gpus)
        elif len(gpus) > 1:
            yield Task(name, workload, gpus, folder, chosen)
        else:
            reply = Reply("skipped", {"kind": Skip.NOT_APPLICABLE}, "there is only one GPU to measure")
            send(measured=name + ":all", reply=vars(reply))
