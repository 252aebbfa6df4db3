"""How fast error counters rise between two moments of one machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpudoctor.facts.counters import LASTING, Counters

LEAST_SECONDS = 60.0
"""Between moments that are closer, a single error would be a high rate."""
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


@dataclass(frozen=True)
class Rate:
    """gpu: its index now. rose: by how much, at least. seconds: in which. since: what happened in between that set the counter to
    zero: "boot", "reset" (of the GPU or the driver), or "" for nothing."""

    gpu: int
    counter: str
    before: int
    now: int
    rose: int
    seconds: float
    since: str = ""

    @property
    def limit(self) -> Limit | None:
        """The rate above which it is unusual; None if none is known for this counter, or it is below."""
        limit = LIMITS.get(self.counter)
        return limit if limit and self.rose > limit.count * self.seconds / limit.seconds else None

    @property
    def words(self) -> str:
        """`14.2 per day`, `7 per hour`, `419,000 per day`."""
        per, seconds = ("hour", _HOUR) if self.counter in PER_HOUR else ("day", _DAY)
        rate = float(f"{self.rose * seconds / self.seconds:.3g}")
        return f"{rate:,.0f} per {per}" if rate >= 1000 else f"{rate:g} per {per}"


@dataclass(frozen=True)
class Limit:
    """More than `count` in `seconds` is unusual; a count of 0 means every one. source: where that stands."""

    count: float
    seconds: float
    source: str


_DCGM = "https://github.com/NVIDIA/DCGM"
PER_HOUR = ("corrected ECC errors", "PCIe replays", "corrected PCIe errors")
LIMITS: Mapping[str, Limit] = {
    "uncorrectable ECC errors": Limit(0, _DAY, "each one ends a program"),
    "corrected ECC errors": Limit(100, _HOUR, "as under load (errors-under-load)"),
    "PCIe replays": Limit(8, _MINUTE, f"DCGM_LIMIT_MAX_PCIREPLAY_RATE of {_DCGM}"),
    "fatal PCIe errors": Limit(0, _DAY, "each one ends a program"),
    "NVLink CRC errors": Limit(100, 1.0, f"DCGM_LIMIT_MAX_NVLINK_CRC_ERROR of {_DCGM}"),
    "NVLink recoveries": Limit(1, _DAY, f"one is a failure in {_DCGM}; a rare one does no harm"),
    "failed NVLink recoveries": Limit(0, _DAY, "the link was down"),
}


def rates(before: Mapping[str, Counters], now: Mapping[str, Counters]) -> Iterator[Rate]:
    """Of each counter of a GPU that both moments know. The earlier moment is `before`."""
    for uuid, later in now.items():
        if earlier := before.get(uuid):
            yield from _of_gpu(earlier, later)


def _of_gpu(earlier: Counters, later: Counters) -> Iterator[Rate]:
    elapsed = (later.time - earlier.time).total_seconds()
    if elapsed < LEAST_SECONDS:
        return
    has_booted = _has_booted(earlier, later, elapsed)
    for name, now in later.values.items():
        if name not in earlier.values:
            continue
        before = earlier.values[name]
        if name in LASTING:
            if now >= before:  # less means that it was cleared, or that the board was exchanged
                yield Rate(later.index, name, before, now, now - before, elapsed)
        elif has_booted:
            seconds = min(later.uptime or elapsed, elapsed)
            if seconds >= LEAST_SECONDS:
                yield Rate(later.index, name, before, now, now, seconds, "boot")
        elif now < before:
            yield Rate(later.index, name, before, now, now, elapsed, "reset")
        else:
            yield Rate(later.index, name, before, now, now - before, elapsed)


def _has_booted(earlier: Counters, later: Counters, elapsed: float) -> bool:
    if earlier.boot and later.boot:
        return earlier.boot != later.boot
    return later.uptime is not None and later.uptime < elapsed
