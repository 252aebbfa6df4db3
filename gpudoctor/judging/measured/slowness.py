"""Why a GPU is slow: causes that many checks share, in the order in which a good engineer rules them out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.judging.measured import expect, faults
from gpudoctor.judging.measured.shortfalls import Shortfall, shortfalls
from gpudoctor.model import Cause, Confidence, Figure, Finding, Problem, Skip, Status, first_cause

POWER_CAP, HARDWARE, THERMAL, HARDWARE_THERMAL, POWER_BRAKE = (1 << bit for bit in (2, 3, 5, 6, 7))
OFTEN = 0.2  # of the samples: a reason that was seen less often does not slow a measurement down
MOST_OF_THE_TIME = 0.5
SHOWN = 3  # wrong results that a message lists
CLOCK_SHARE = 0.85  # of the highest clock: something slows down a GPU that runs below this under load
LIMIT_SHARE = 0.97  # of the default power limit
SUPPLIES = {
    "battery": ("gpu-on-battery", "it runs on battery"),
    "undersized": ("gpu-power-supply-too-weak", "its charger is too weak"),
}


@dataclass(frozen=True)
class Slow:
    """A GPU whose figures fall short, `worst` first, with the samples of the worst figure that has any."""

    facts: Facts
    index: int
    worst: Shortfall
    all: Sequence[Shortfall]

    @cached_property
    def gpu(self) -> Gpu | None:
        return expect.gpu(self.facts, self.index)

    @cached_property
    def during(self) -> dict[str, Any]:
        """The samples; Skip if there are none, as no cause can then be ruled out."""
        if not self.seen:
            raise Skip("the clocks were not sampled", Skip.NO_ANSWER)
        return self.seen

    @cached_property
    def seen(self) -> dict[str, Any]:
        """The samples, or {} if the kernels finished between two samples."""
        return next((shortfall.figure.during for shortfall in self.all if shortfall.figure.during), {})

    def reason(self, bit: int) -> float:
        """The share of the time in which the clocks were lowered for this reason."""
        share: float = self.during["reasons"].get(f"{bit:#x}", 0.0)
        return share

    @cached_property
    def words(self) -> str:
        more = len(self.all) - 1
        return f"GPU {self.index}: {self.worst.words}" + (f", and {more} more figure{'s' * (more > 1)}" if more else "")

    def found(
        self, problem: Problem, words: str, because: str = "", confidence: Confidence = Confidence.CONFIRMED, **more: Any
    ) -> Finding:
        evidence = {**self.evidence, **more}
        message = f"{self.words}; {words}" if words else self.words
        return replace(problem.found(message, evidence, self.index, confidence, partial=True), because=because)

    @cached_property
    def evidence(self) -> dict[str, Any]:
        seen: dict[str, Any] = {
            name: self.seen[name] for name in ("sm_mhz", "memory_mhz", "watts", "celsius") if name in self.seen
        }
        reasons = [reason.name for bit in self.seen.get("reasons", {}) for reason in knowledge.clock_reasons(int(bit, 16))]
        figures = [shortfall.words for shortfall in self.all]
        return {"index": self.index, "address": self.address, "figures": figures, **seen, "clock_reasons": reasons}

    @property
    def address(self) -> str:
        try:
            return self.gpu.bus_id if self.gpu else str(self.index)
        except Skip:
            return str(self.index)


def shared(slow: Slow) -> Finding | None:
    others = slow.during.get("others", ())
    if not others:
        return None
    names = ", ".join(f"{other['name']} (pid {other['pid']}, {other['mib']} MiB)" for other in others)
    pids = ",".join(str(other["pid"]) for other in others)
    return slow.found(faults.SHARED, f"{names} used it at the same time", because="other-process-using-gpu", pids=pids)


def braked(slow: Slow) -> Finding | None:
    if slow.reason(POWER_BRAKE) < OFTEN:
        return None
    words = f"the power brake was on {slow.reason(POWER_BRAKE):.0%} of the time"
    return slow.found(faults.BRAKE, words, because="hw-power-brake")


def hot(slow: Slow) -> Finding | None:
    share = max(slow.reason(THERMAL), slow.reason(HARDWARE_THERMAL))
    if share < OFTEN:
        return None
    words = f"slowed down by heat {share:.0%} of the time, at up to {slow.during.get('celsius', '?')} °C"
    return slow.found(faults.HOT, words, because="hw-thermal-slowdown" if was_hot(slow) else "sw-thermal-slowdown")


def was_hot(slow: Slow) -> bool:
    """Whether the hardware had lowered the clocks before the measurements."""
    return known(lambda: slow.gpu is not None and bool(slow.gpu.clock_reasons & HARDWARE_THERMAL), False)


def low_clocks(slow: Slow) -> Finding | None:
    if slow.gpu is None or slow.reason(POWER_CAP) >= OFTEN:
        return None
    highest = dict(slow.gpu.maximum_clocks_mhz)
    sheet = expect.board(slow.facts, slow.index)
    if sheet and sheet.boost_mhz and "sm" in highest:  # GeForce cards report clocks far above the advertised boost
        highest["sm"] = min(highest["sm"], sheet.boost_mhz)
    for name, reading in (("sm", "sm_mhz"), ("memory", "memory_mhz")):
        clock, top = slow.during.get(reading), highest.get(name)
        if clock and top and clock < CLOCK_SHARE * top:
            words = f"its {name} clock was {clock:.0f} MHz of {top} MHz"
            found = slow.found(faults.LOW_CLOCKS, words, because="application-clocks-lowered")
            return replace(found, causes=(faults.HOT.id, faults.BRAKE.id))  # of another figure of this GPU
    return None


def power(slow: Slow) -> Finding | None:
    if slow.gpu is None or slow.reason(POWER_CAP) < OFTEN:
        return None
    return lowered(slow, slow.gpu) or at_its_limit(slow, slow.gpu)


def lowered(slow: Slow, gpu: Gpu) -> Finding | None:
    """A limit below its default; None also for laptops, which have no default limit."""
    try:
        limit, default = gpu.enforced_power_limit_watts, gpu.default_power_limit_watts
    except Skip:
        return None
    if limit >= LIMIT_SHARE * default:
        return None
    words = f"its power limit is {limit:.0f} W of {default:.0f} W"
    return slow.found(faults.LOWERED, words, because="sw-power-cap-low-limit", default_watts=round(default))


def at_its_limit(slow: Slow, gpu: Gpu) -> Finding | None:
    if slow.reason(POWER_CAP) < MOST_OF_THE_TIME:
        return None
    clock, top = slow.during.get("sm_mhz"), gpu.maximum_clocks_mhz.get("sm")
    if not clock or not top or clock >= CLOCK_SHARE * top:
        return None
    words = f"at {slow.during.get('watts', 0):.0f} W its SM clock was {clock:.0f} MHz of {top} MHz"
    return slow.found(faults.POWER, words, confidence=Confidence.LIKELY)


def supplied(slow: Slow) -> Finding | None:
    """A laptop on battery, or on a charger that is too weak."""
    gpu = slow.gpu
    supply = known(lambda: gpu.power_source, "") if gpu else ""
    if supply not in SUPPLIES:
        return None
    problem, words = SUPPLIES[supply]
    return slow.found(faults.POWER, words, because=problem)


CAUSES = (
    Cause(faults.SHARED, shared),
    Cause(faults.BRAKE, braked),
    Cause(faults.HOT, hot),
    Cause(faults.POWER, supplied),
    Cause(faults.LOW_CLOCKS, low_clocks),
    Cause(faults.POWER, power),
)


def judge(
    facts: Facts, figures: Iterable[Figure], causes: Sequence[Cause] = (), otherwise: Problem = faults.SLOW
) -> Iterator[Finding]:
    """Wrong results, and one finding with its cause for each GPU that falls short. `causes` are tried first.

    otherwise: the problem if no cause is found; it fails instead of warning if a figure is below shortfalls.FAIL.
    """
    figures = tuple(figures)
    yield from wrong_results(facts, figures)
    found: dict[int, list[Shortfall]] = {}
    for shortfall in shortfalls(facts, figures):
        found.setdefault(shortfall.figure.gpu or 0, []).append(shortfall)
    for index, all in found.items():
        ordered = sorted(all, key=lambda shortfall: shortfall.share / shortfall.limit)
        slow = Slow(facts, index, ordered[0], ordered)
        problem = replace(otherwise, status=Status.FAIL) if ordered[0].is_failure else otherwise
        unknown = slow.found(problem, "")
        yield from first_cause((*causes, *CAUSES), slow, unknown)


def wrong_results(facts: Facts, figures: Iterable[Figure]) -> Iterator[Finding]:
    """One finding for each GPU that computed a wrong result."""
    found: dict[int | None, list[Figure]] = {}
    for figure in figures:
        if figure.wrong:
            found.setdefault(figure.gpu, []).append(figure)
    for gpu, (first, *rest) in found.items():
        finding = wrong(first)
        more = "".join(f"; {figure.what}: {figure.wrong}" for figure in rest[: SHOWN - 1])
        more += f"; and {len(rest) - SHOWN + 1} more" * (len(rest) >= SHOWN)
        because = "gpu-memory-wrong" if has_wrong_memory(facts, gpu) else ""
        yield replace(finding, message=finding.message + more, because=because)


def has_wrong_memory(facts: Facts, gpu: int | None) -> bool:
    """Whether the check memory-pattern found wrong words in this GPU's memory."""
    runs = known(lambda: facts.measured.runs("memory-pattern"), ())
    patterns = (result for run in runs if run.gpu == gpu for result in run.values.values())
    return any(isinstance(result, dict) and result.get("wrong_words") for result in patterns)


def wrong(figure: Figure) -> Finding:
    where = "" if figure.gpu is None else f"GPU {figure.gpu}: "
    evidence = {"index": figure.gpu or 0}
    return faults.WRONG.found(f"{where}{figure.what}: {figure.wrong}", evidence, figure.gpu, partial=True)
