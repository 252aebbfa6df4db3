"""The work on each GPU while a job was watched: how busy it was, and what the processes on it and their loaders did."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise

from gpudoctor.facts import Facts
from gpudoctor.facts.job.watched import Watched
from gpudoctor.facts.job.watched_parts import Gpu, OnGpu, Process
from gpudoctor.facts.known import known
from gpudoctor.model import Confidence, Finding, Problem, Skip

LEAST_SECONDS = 3.0
RAN_PERCENT = {"graphics": 0.02, "busy": 0.5}  # from here on some kernel ran; NVML has whole percents
GAP_SECONDS = 1.5  # without a kernel
START_SECONDS = 10.0  # after the first kernel, in which libraries are still loaded and kernels chosen
LEAST_GAIN = 0.1  # of the time: what saves less is only noted
IDLE = 0.15  # of the time: from here on the GPU waits for something
MIB_OF_A_JOB = 300.0  # a CUDA context alone holds less than twice this


@dataclass(frozen=True)
class Work:
    """One GPU and the processes of the job that use it. window: from the first to the last kernel, in seconds of the watch."""

    watched: Watched
    gpu: Gpu
    users: tuple[Process, ...]
    loaders: tuple[Process, ...]

    @cached_property
    def window(self) -> tuple[float, float]:
        """A program that is started under watch first loads its libraries and ends at some time; both are no waiting GPU."""
        active = [at for at, value in self.column(self._source) if value >= RAN_PERCENT[self._source]]
        half = self.watched.timeline.every / 2
        if not active or self.watched.kind != "command":
            return 0.0, self.watched.seconds
        began, last = active[0] - half, active[-1] + half
        gaps = [after for at, after in pairwise(active) if after - at >= GAP_SECONDS + 2 * half]
        settled = max((after - half for after in gaps if after <= active[0] + START_SECONDS), default=began)
        blur = self.gpu.blur  # a mean at an edge also covers time without a kernel
        choices = ((settled + blur, last - blur), (settled, last), (began, last))
        return next((window for window in choices if window[1] - window[0] >= LEAST_SECONDS), (began, last))

    @cached_property
    def _source(self) -> str:
        """GPM counts each kernel; NVML's utilisation is a mean over its last sampling period."""
        return "graphics" if self.gpu.mean("graphics") is not None else "busy"

    @property
    def seconds(self) -> float:
        return self.window[1] - self.window[0]

    def column(self, name: str) -> list[tuple[float, float]]:
        return self.watched.timeline.column(f"gpu{self.gpu.index}.{name}")

    def mean(self, name: str) -> float | None:
        """Of a reading within the window; of all readings if the timeline does not have it."""
        began, ended = self.window
        inside = [value for at, value in self.column(name) if began <= at <= ended]
        return statistics.fmean(inside) if inside else self.gpu.mean(name)

    def share(self, name: str) -> float | None:
        value = self.mean(name)
        return None if value is None else min(1.0, value / 100)

    @cached_property
    def busy(self) -> float:
        """The share of the time in which some kernel ran."""
        counted = self.share("graphics")
        found = self.share("busy") if counted is None else counted
        return self.gpu.busy if found is None else found

    @property
    def idle(self) -> float:
        return 1 - self.busy

    @property
    def waits(self) -> bool:
        return self.idle >= IDLE

    @property
    def works(self) -> bool:
        """Whether it did anything at all."""
        return self.busy >= RAN_PERCENT[self._source] / 100

    @property
    def filled(self) -> float | None:
        """How many of the multiprocessors worked while a kernel ran; None if that was not measured."""
        part = self.share("sm")
        return None if part is None or self.busy < 0.01 else min(1.0, part / self.busy)

    @property
    def main_thread(self) -> float:
        """The share of the time in which the busiest thread of the processes on the GPU ran."""
        found = self.mean("main_thread")
        return max((user.busiest_thread for user in self.users), default=0.0) if found is None else found

    @property
    def busiest_loader(self) -> float:
        found = self.mean("busiest_loader")
        return max((loader.cores for loader in self.loaders), default=0.0) if found is None else found

    @property
    def others(self) -> tuple[OnGpu, ...]:
        """Processes on this GPU that are not part of the job."""
        return tuple(process for process in self.gpu.processes if process.pid not in self.watched.pids)

    @property
    def own_mib(self) -> float:
        return sum(process.mib or 0.0 for process in self.gpu.processes if process.pid in self.watched.pids)

    @property
    def subject(self) -> str:
        return f"GPU {self.gpu.index}"

    @property
    def had_nothing_to_do(self) -> str:
        return f"GPU {self.gpu.index} had nothing to do in {self.idle:.0%} of the time"


def works(facts: Facts) -> tuple[Work, ...]:
    """The work on each GPU that was used. Skip if nothing was watched, or not for long enough."""
    watched = facts.job.watched
    if watched.seconds < LEAST_SECONDS:
        raise Skip(f"watched for {watched.seconds:.1f} s: too short to judge", Skip.NOT_MEASURED)
    if not watched.gpus:
        raise Skip(watched.why_no_gpu or "no GPU was watched", Skip.NO_ANSWER)
    return tuple(_works(watched))


def _works(watched: Watched) -> Iterator[Work]:
    by_pid = {process.pid: process for process in watched.processes}
    for gpu in watched.gpus:
        listed = watched.used.get(gpu.index, ())
        users = tuple(by_pid[pid] for pid in listed if pid in by_pid)
        if watched.kind == "gpus" or listed:
            pids = {user.pid for user in users}
            loaders = tuple(process for process in watched.processes if process.role == "loader" and process.parent in pids)
            yield Work(watched, gpu, users, loaders)


def busy_works(facts: Facts) -> tuple[Work, ...]:
    """Those on which something ran for long enough to be judged. Skip if there is none."""
    all = works(facts)
    found = tuple(work for work in all if work.works and work.seconds >= LEAST_SECONDS)
    if not found:
        short = [work for work in all if work.works]
        raise Skip(
            f"kernels ran only for {max(work.seconds for work in short):.1f} s: too short to judge"
            if short
            else "no kernel ran while it was watched",
            Skip.NOT_MEASURED,
        )
    return found


def together(findings: Sequence[tuple[Work, Finding]]) -> Iterator[Finding]:
    """The same problem on several GPUs is one finding: the words of the GPU that loses most, and a list of the others."""

    def order(pair: tuple[Work, Finding]) -> str:
        return pair[1].problem.id

    for _, group in groupby(sorted(findings, key=order), key=order):
        pairs = sorted(group, key=lambda pair: -float(pair[1].evidence.get("saves_at_most", 0.0)))
        first = pairs[0][1]
        if len(pairs) == 1:
            yield first
            continue
        indices = sorted(work.gpu.index for work, _ in pairs)
        evidence = {**first.evidence, "gpus": ",".join(map(str, indices))}
        sure = all(finding.confidence is Confidence.CONFIRMED for _, finding in pairs)
        yield Finding(
            first.problem,
            f"{first.message} (and likewise on {len(pairs) - 1} more)",
            evidence,
            None,
            Confidence.CONFIRMED if sure else Confidence.LIKELY,
        )


def on_each(facts: Facts, judge: Callable[[Work], Iterator[Finding]]) -> Iterator[Finding]:
    yield from together([(work, finding) for work in busy_works(facts) for finding in judge(work)])


def found(problem: Problem, work: Work, words: str, saves: float, sure: bool, **evidence: object) -> Finding:
    """saves: the share of the time that a fix could give back at most."""
    saves = max(0.0, min(0.99, saves))
    measured = {
        "busy_percent": round(100 * work.busy, 1),
        "saves_at_most": round(saves, 3),
        "seconds_judged": round(work.seconds, 1),
        "counters": "GPM or DCGM" if work.gpu.has_metrics else f"NVML only: {work.gpu.why_no_metrics}",
        **{name: value for name, value in evidence.items() if value is not None},
    }
    address = known(lambda: work.gpu.bus_id)
    measured |= {"address": address} if address else {}
    confidence = Confidence.CONFIRMED if sure else Confidence.LIKELY
    finding = problem.found(f"{words}; {saving(saves)}", measured, work.gpu.index, confidence)
    return finding if saves >= LEAST_GAIN else finding.as_note


def saving(share: float) -> str:
    """Amdahl's law in words."""
    if share < 0.01:
        return "a fix saves next to no time"
    if share >= 0.9:
        return "a fix can save most of the time"
    return f"a fix saves at most {share:.0%} of the time ({1 / (1 - share):.1f} times as fast)"


def percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.0%}"
