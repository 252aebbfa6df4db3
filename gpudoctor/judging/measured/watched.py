"""What was watched while a long load ran: counters that moved, Xids, and what ran at each moment. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.join import gpu_of
from gpudoctor.facts.kernel_log import LogLine, Xid, log_line, xid_of
from gpudoctor.judging.measured import burning, expect
from gpudoctor.model import Skip

NOTHING_RAN = "nothing"
LOADS = {
    "power": "{} products",
    "bursts": "bursts of {} products",
    "memory": "memory patterns",
    "pcie": "copies to and from the host",
    "links": "copies between GPUs",
    "sums": "sums over all GPUs",
}
# What could not be watched, in words -> the counters of which one is enough.
GROUPS = {
    "NVLink errors": ("nvlink", "nvlink_replay", "nvlink_recovery"),
    "NVLink bit error rates": ("nvlink_effective_ber", "nvlink_symbol_ber"),
    "ECC errors": ("ecc_corrected", "ecc_uncorrected"),
    "remapped rows": ("rows_corrected",),
    "memory temperature": ("memory_celsius",),
    "PCIe replays": ("pcie_replays",),
}
Point = tuple[float, float]  # seconds since the load began, and a value


class Stretch(NamedTuple):
    """When a load ran, in seconds. words: "fp16 products"."""

    began: float
    ended: float
    words: str


@dataclass(frozen=True)
class Series:
    """The moments at which a counter of a GPU changed. link: of an NVLink, else None."""

    counter: str
    link: int | None
    points: tuple[Point, ...]


class Growth(NamedTuple):
    """How a counter grew. began: its first growth, in seconds. per_minute: from then to the end of the load, at least a minute.

    while_ran: load in words -> how much it grew meanwhile.
    """

    counter: str
    link: int | None
    rose: float
    began: float
    per_minute: float
    while_ran: Counter[str]

    @property
    def words(self) -> str:
        """`from 2:10 on, 12 a minute, during memory patterns`."""
        loads = ", ".join(words for words, _ in self.while_ran.most_common(3) if words != NOTHING_RAN)
        is_one = self.rose <= 1
        when = f"at {clock(self.began)}" if is_one else f"from {clock(self.began)} on"
        rate = "" if is_one or self.per_minute < 1 else f", {self.per_minute:.0f} a minute"
        return f"{when}{rate}{', during ' + loads if loads else ''}"


class UnderLoad(Guarded):
    """Times are seconds since the load began."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._watched = facts.measured.watched

    @cached_property
    def _shared(self) -> dict[str, Any]:
        found: dict[str, Any] = self._watched.get("all") or {}
        return found

    @property
    def source(self) -> str:
        """How the kernel log was read: kmsg, ring buffer, journal; "" if it could not be read."""
        return self._shared.get("source") or ""

    @property
    def why_no_log(self) -> str:
        return self._shared.get("why") or ""

    @property
    def every_seconds(self) -> float:
        return float(self._shared.get("every_seconds") or 0.0)

    @cached_property
    def gpus(self) -> tuple[int, ...]:
        return tuple(sorted(int(name[len("gpu") :]) for name in self._watched if name != "all"))

    def has_events(self, gpu: int) -> bool:
        """Whether NVML reported the Xids of this GPU."""
        return str(gpu) not in (self._shared.get("events") or {})

    def watched(self, gpu: int) -> tuple[str, ...]:
        return tuple(self._of(gpu).get("watched") or ())

    def links(self, gpu: int) -> tuple[int, ...]:
        return tuple(int(link) for link in self._of(gpu).get("links") or ())

    def not_watched(self, gpu: int) -> Mapping[str, str]:
        """Counter -> why it could not be read."""
        return self._of(gpu).get("not_watched") or {}

    def highest(self, gpu: int) -> Mapping[str, float]:
        """ "memory_celsius", or a bit error rate such as "nvlink_symbol_ber:3" -> its highest value."""
        return self._of(gpu).get("highest") or {}

    def moved(self, gpu: int) -> tuple[Series, ...]:
        found = self._of(gpu).get("moved") or {}
        return tuple(_series(name, points) for name, points in sorted(found.items()))

    def _of(self, gpu: int) -> dict[str, Any]:
        found: dict[str, Any] = self._watched.get(f"gpu{gpu}") or {}
        return found

    @cached_property
    def lines(self) -> tuple[tuple[float, LogLine], ...]:
        """The lines of the kernel log, each with its second."""
        seconds, lines = self._shared.get("line_seconds") or (), self._shared.get("lines") or ()
        return tuple((float(at), log_line(raw)) for at, raw in zip(seconds, lines, strict=False))

    @cached_property
    def xids(self) -> dict[int, tuple[Xid, ...]]:
        """GPU -> its Xids; seconds: since the load began. NVML's events add those that the kernel log does not have."""
        found: dict[int, list[Xid]] = {}
        known: set[tuple[int, int]] = set()
        for at, line in self.lines:
            xid = xid_of(line)
            gpu = gpu_of(self._facts, f"{xid.pci}.0") if xid else None
            if xid and gpu is not None and not xid.is_injected:
                found.setdefault(gpu.index, []).append(replace(xid, seconds=at))
                known.add((gpu.index, xid.code))
        for at, gpu, code in self._shared.get("xids") or ():
            if (gpu, code) not in known:
                found.setdefault(gpu, []).append(Xid(self._slot(gpu), code, "", at, None, None))
        return {gpu: tuple(sorted(xids, key=lambda xid: xid.seconds or 0.0)) for gpu, xids in sorted(found.items())}

    def _slot(self, index: int) -> str:
        gpu = expect.gpu(self._facts, index)
        return gpu.bus_id.rpartition(".")[0] if gpu else ""

    def growths(self, gpu: int) -> tuple[Growth, ...]:
        """Of the counters that grew; one that was set to zero meanwhile grew from there on."""
        return tuple(growth for series in self.moved(gpu) if (growth := self._growth(gpu, series)))

    def _growth(self, gpu: int, series: Series) -> Growth | None:
        steps = [(at, value - before) for (_, before), (at, value) in zip(series.points, series.points[1:], strict=False)]
        steps = [(at, step) for at, step in steps if step > 0]
        if not steps:
            return None
        while_ran: Counter[str] = Counter()
        for at, step in steps:
            while_ran[self.ran_at(gpu, at) or NOTHING_RAN] += math.ceil(step)
        rose, began = sum(step for _, step in steps), steps[0][0]
        minutes = max(1.0, (max(self.ended, steps[-1][0]) - began) / 60)
        return Growth(series.counter, series.link, rose, began, rose / minutes, while_ran)

    def ran_at(self, gpu: int, second: float) -> str:
        """What ran on the GPU half-way between this reading and the one before, in words; "" if nothing did."""
        moment = max(0.0, second - self.every_seconds / 2)
        return next((one.words for one in self.stretches(gpu) if one.began <= moment <= one.ended), "")

    def stretches(self, gpu: int) -> tuple[Stretch, ...]:
        return self._stretches.get(gpu, ()) + self._stretches.get(None, ())

    @cached_property
    def _stretches(self) -> dict[int | None, tuple[Stretch, ...]]:
        """GPU -> its loads; None -> those of all GPUs together."""
        found: dict[int | None, tuple[Stretch, ...]] = {}
        for workload in (burning.WORKLOAD, burning.LINKS, burning.COLLECTIVES):
            for each in _burned(self._facts, workload):
                found[each.index] = (*found.get(each.index, ()), *_stretches(each))
            for gpu, cut in _unfinished(self._facts, workload):
                found[gpu] = (*found.get(gpu, ()), cut)
        return found

    @cached_property
    def ended(self) -> float:
        """When the last stretch ended."""
        ends = [one.ended for found in self._stretches.values() for one in found]
        return max((end for end in ends if end != math.inf), default=0.0)


def under_load(facts: Facts) -> UnderLoad:
    """Skip if nothing was watched, as by older versions."""
    (found,) = facts.once(_made)
    return found


def _made(facts: Facts) -> Iterator[UnderLoad]:
    yield UnderLoad(facts)


def _unfinished(facts: Facts, workload: str) -> Iterator[tuple[int | None, Stretch]]:
    """The stretch in which a load ended early, which has no result."""
    try:
        runs = facts.measured.runs(workload)
    except Skip:
        return
    for run in runs:
        cut = run.values.get("unfinished") or {}
        if cut.get("load"):
            yield run.gpu, Stretch(float(cut["began"]), math.inf, LOADS.get(cut["load"], cut["load"]).format("").strip())


def not_watched(seen: UnderLoad) -> list[str]:
    """What could not be read on any GPU, with the reason: "NVLink bit error rates (not supported …)"."""
    found = []
    for words, counters in GROUPS.items():
        reasons = {seen.not_watched(gpu).get(name, "") for gpu in seen.gpus for name in counters} - {""}
        is_read = any(name in seen.watched(gpu) for gpu in seen.gpus for name in counters)
        if reasons and not is_read:
            found.append(f"{words} ({'; '.join(sorted(reasons))})")
    if not seen.source:
        found.append(f"the kernel log ({seen.why_no_log})")
    return found


def _burned(facts: Facts, workload: str) -> tuple[burning.Burned, ...]:
    try:
        return burning.burned(facts, workload)
    except Skip:
        return ()


def _stretches(each: burning.Burned) -> Iterator[Stretch]:
    for one in each.stretches:
        began, seconds = one.values.get("began"), one.values.get("seconds")
        if began is not None and seconds is not None:
            yield Stretch(float(began), float(began) + float(seconds), LOADS.get(one.load, one.load).format(one.precision))


def clock(seconds: float) -> str:
    """`2:10`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"


def _series(name: str, points: Iterable[Any]) -> Series:
    counter, _, link = name.partition(":")
    pairs = tuple((float(at), float(value)) for at, value in points)
    return Series(counter, int(link) if link else None, pairs)
