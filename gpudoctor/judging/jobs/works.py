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
from gpudoctor.judging.jobs import readings
from gpudoctor.judging.jobs.readings import Reading
from gpudoctor.model import Confidence, Finding, Problem, Skip

LEAST_SECONDS = 3.0
LEAST_READINGS = 3  # of how busy a GPU was, and of these that agree that it waits
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
        if self.watched.kind != "command" or not self._all_readings:
            return 0.0, self.watched.seconds
        began, last = self._settled
        kept = self.readings
        return (kept[0].began, kept[-1].ended) if kept else (began, last)

    @cached_property
    def _settled(self) -> tuple[float, float]:
        active = [reading for reading in self._all_readings if reading.value >= RAN_PERCENT[self._source]]
        if self.watched.kind != "command" or not active:
            return 0.0, self.watched.seconds
        gaps = [after.began for reading, after in pairwise(active) if after.began - reading.ended >= GAP_SECONDS]
        limit = active[0].began + START_SECONDS
        return max((began for began in gaps if began <= limit), default=active[0].began), active[-1].ended

    @cached_property
    def _all_readings(self) -> tuple[Reading, ...]:
        covers = dict(self.column("covers"))
        default = self.gpu.blur if self._source == "graphics" else 0.0
        return tuple(readings.of(self.column(self._source), covers, self.watched.timeline.every, default))

    @cached_property
    def readings(self) -> tuple[Reading, ...]:
        """Of how busy it was, since it has settled. One that also covers time before that or after the end says nothing."""
        if self.watched.kind != "command":
            return self._all_readings
        return tuple(reading for reading in self._all_readings if reading.is_within(*self._settled))

    @property
    def why_too_few(self) -> str:
        """Why the readings prove neither a busy GPU nor one that waits; "" if they do."""
        has_timeline = bool(self._all_readings)
        number = readings.number(self.readings) if has_timeline else self.gpu.number(self._source)
        if number < LEAST_READINGS:
            return f"too few readings of GPU {self.gpu.index} after the program's start: {number}"
        agree = readings.number(reading for reading in self.readings if reading.value <= 100 * (1 - IDLE))
        if self.waits and has_timeline and agree < LEAST_READINGS:
            return f"too few readings of GPU {self.gpu.index} agree that it waits: {agree} of {number}"
        return ""

    @cached_property
    def _source(self) -> str:
        """GPM counts each kernel; NVML's utilisation is a mean over its last sampling period."""
        return "graphics" if self.gpu.mean("graphics") is not None else "busy"

    @property
    def seconds(self) -> float:
        return self.window[1] - self.window[0]

    @property
    def ran_seconds(self) -> float:
        """From when it has settled, with the readings at both edges."""
        return self._settled[1] - self._settled[0]

    def column(self, name: str) -> list[tuple[float, float]]:
        return self.watched.timeline.column(f"gpu{self.gpu.index}.{name}")

    def mean(self, name: str) -> float | None:
        """Of a reading within the window; of all readings if the timeline does not have it."""
        inside = self._within(name)
        return statistics.fmean(inside) if inside else self.gpu.mean(name)

    def median(self, name: str) -> float | None:
        """As mean."""
        inside = self._within(name)
        return statistics.median(inside) if inside else self.gpu.mean(name)

    def _within(self, name: str) -> list[float]:
        began, ended = self.window
        return [value for at, value in self.column(name) if began <= at <= ended]

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
    found = tuple(work for work in all if work.works)
    if not found:
        raise Skip("no kernel ran while it was watched", Skip.NOT_MEASURED)
    long = tuple(work for work in found if work.ran_seconds >= LEAST_SECONDS)
    if not long:
        seconds = max(work.ran_seconds for work in found)
        raise Skip(f"kernels ran only for {seconds:.1f} s: too short to judge", Skip.NOT_MEASURED)
    proven = tuple(work for work in long if not work.why_too_few)
    if not proven:
        raise Skip(long[0].why_too_few, Skip.NOT_MEASURED)
    return proven


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
