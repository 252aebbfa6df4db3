"""What a long load did, stretch by stretch: which results were wrong, and how speed and heat went over time."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.measured import Run
from gpudoctor.judging.measured import expect
from gpudoctor.model import Skip

WORKLOAD, LINKS, COLLECTIVES = "burn", "burn-links", "burn-collectives"
LEAST_STRETCHES = 6  # of one load, to say that it gets slower: two for each third
HEAT = 0x8 | 0x20 | 0x40  # hardware slowdown, thermal slowdown by software and by hardware
POWER_BRAKE = 0x80
OUTLIER = 3.5  # of the modified z-score: Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993
TO_Z = 0.6745


@dataclass(frozen=True)
class Stretch:
    """Some seconds of one load. celsius, memory_celsius, mhz, watts: None if NVML did not report them."""

    name: str
    load: str
    values: Mapping[str, Any]

    @property
    def wrong_words(self) -> int:
        found = self.values["wrong_words"]
        return sum(found.values()) if isinstance(found, dict) else int(found)

    @property
    def precision(self) -> str:
        return str(self.values.get("precision", ""))

    @property
    def tflops(self) -> float:
        return float(self.values["tflops"])

    @property
    def celsius(self) -> float | None:
        return self._during("celsius")

    @property
    def memory_celsius(self) -> float | None:
        return self._during("memory_celsius")

    @property
    def mhz(self) -> float | None:
        return self._during("sm_mhz")

    @property
    def watts(self) -> float | None:
        return self._during("median_watts")

    @property
    def reasons(self) -> Mapping[int, float]:
        """Reason (a bit) -> the share of the time in which it held the clocks down."""
        reasons = self.values.get("during", {}).get("reasons", {})
        return {int(bit, 16): share for bit, share in reasons.items()}

    def _during(self, name: str) -> float | None:
        found = self.values.get("during", {}).get(name)
        return None if found is None else float(found)


@dataclass(frozen=True)
class Burned:
    """One GPU, or all together (index None) for the links. is_complete: it was not ended early."""

    index: int | None
    stretches: tuple[Stretch, ...]
    is_complete: bool
    seconds: float

    def of(self, load: str) -> list[Stretch]:
        return [stretch for stretch in self.stretches if stretch.load == load]

    @property
    def hottest(self) -> list[Stretch]:
        """The stretches of power in the precision that ran most, without the first, in which the GPU was still cold."""
        power = self.of("power")
        names = [stretch.precision for stretch in power]
        if not names:
            return []
        first = max(dict.fromkeys(names), key=names.count)
        return [stretch for stretch in power if stretch.precision == first][1:]


def burned(facts: Facts, workload: str = WORKLOAD) -> tuple[Burned, ...]:
    """Every GPU that was under load; Skip if none was."""
    found = [_of(run) for run in facts.measured.runs(workload)]
    if not any(each.stretches for each in found):
        raise Skip("the load ended before its first result", Skip.CUT_OFF)
    return tuple(each for each in found if each.stretches)


def _of(run: Run) -> Burned:
    stretches = [
        Stretch(name, values["load"], values)
        for name, values in run.values.items()
        if re.fullmatch(r"\w+ \d+", name) and isinstance(values, dict) and "load" in values
    ]
    return Burned(run.gpu, tuple(stretches), "complete" in run.values, run.seconds)


class Trend(NamedTuple):
    """A speed (TFLOP/s) at the start and the end, and what held the clocks down at the end."""

    before: float
    after: float
    reasons: dict[int, float]

    @property
    def lost(self) -> float:
        return 1 - self.after / self.before


def trend(stretches: Sequence[Stretch]) -> Trend | None:
    """From the first third to the last; None if there are too few stretches to tell."""
    if len(stretches) < LEAST_STRETCHES:
        return None
    third = len(stretches) // 3
    before, after = (statistics.median(stretch.tflops for stretch in part) for part in (stretches[:third], stretches[-third:]))
    reasons: dict[int, float] = {}
    for stretch in stretches[-third:]:
        for bit, share in stretch.reasons.items():
            reasons[bit] = max(share, reasons.get(bit, 0.0))
    return Trend(before, after, reasons)


def names_of(reasons: Mapping[int, float], least: float = 0.05) -> list[str]:
    """The reasons that held at least this share of the time."""
    mask = sum(bit for bit, share in reasons.items() if share >= least)
    return [reason.name for reason in knowledge.clock_reasons(mask)]


class Odd(NamedTuple):
    """A GPU (NVML's index) whose figure is far from those of its kind. usual: their median."""

    gpu: int
    value: float
    usual: float


def odd(values: Mapping[int, float], sign: int, share: float = 0.0, least: float = 0.0) -> Iterator[Odd]:
    """The GPUs that are too low (sign -1) or too high (1) among equal ones.

    They differ from the median of the others by more than `share` of it and by more than `least`; among three GPUs or more they
    are also outliers by the modified z-score.
    """
    for index, value in values.items():
        others = [other for number, other in values.items() if number != index]
        if not others:
            return
        usual = statistics.median(others)
        far = sign * (value - usual)
        if far > share * usual and far > least and (len(others) < 2 or _z(value, list(values.values())) > OUTLIER):
            yield Odd(index, value, usual)


def hotter_than_neighbours(degrees: Mapping[int, float], order: Sequence[int], least: float) -> Odd | None:
    """The only GPU that is hotter than the GPUs in both next slots; usual: the hotter one of these.

    Several such are no fault: boards alternate between the cool front row and the warm rear row.
    """
    row = [index for index in order if index in degrees]
    found = []
    for place, index in enumerate(row):
        first = min(max(place - 1, 0), max(len(row) - 3, 0))
        next_ones = [degrees[other] for other in row[first : first + 3] if other != index]
        if len(next_ones) == 2 and degrees[index] - max(next_ones) > least:
            found.append(Odd(index, degrees[index], max(next_ones)))
    return found[0] if len(found) == 1 else None


def _z(value: float, values: Sequence[float]) -> float:
    """The modified z-score; without any spread among the others, every difference is one."""
    median = statistics.median(values)
    spread = statistics.median(abs(each - median) for each in values)
    return TO_Z * abs(value - median) / spread if spread else float("inf")


def by_kind(facts: Facts, found: Sequence[Burned]) -> Iterator[list[Burned]]:
    """The GPUs of each model."""
    groups: dict[str, list[Burned]] = {}
    for each in found:
        gpu = expect.gpu(facts, each.index) if each.index is not None else None
        groups.setdefault(gpu.name if gpu else "", []).append(each)
    yield from groups.values()
