"""A workload on its GPUs: the request to a host, and the reply that results."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from gpudoctor.worker.measuring import bench, cgroup_events, settings
from gpudoctor.worker.measuring.bench import TOGETHER, Workload
from gpudoctor.worker.measuring.fork_server import Request, last_words
from gpudoctor.worker.measuring.sampler import Sampler
from gpudoctor.worker.reply import Reply

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

    def __init__(self, name: str, workload: Workload, gpus: List[Gpu], folder: str) -> None:
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
        return Request(self.id, self.name, [gpu.ordinal for gpu in self.gpus], level, self.gpus[0].cores, self.file)

    def prepare(self, now: float) -> None:
        """The workload starts before its turn."""
        self.started, self.deadline = now, now + PREPARING_SECONDS

    def begin(self, now: float) -> None:
        """The workload has its turn on the GPUs; its time limit starts now."""
        self.has_turn = True
        self.started, self.deadline = now, now + self.workload.seconds
        bench.touch(self.file + bench.GO)

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
