"""A process and a GPU of a job, as `gpudoctor watch` saw them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpudoctor.facts.guarded import Guarded
from gpudoctor.model import Unavailable


@dataclass(frozen=True)
class Process(Guarded):
    """One process of the job. role: gpu, loader, launcher or helper. cores: CPU seconds per second.

    busiest_thread: the same for the busiest thread at each look. states: state of the main thread -> share of the looks. waits:
    function of the kernel -> share of the looks. queued: share of the time in which the main thread was ready and got no CPU.
    """

    pid: int
    raw: Mapping[str, Any]

    @property
    def parent(self) -> int:
        return int(self.raw["parent"])

    @property
    def role(self) -> str:
        return str(self.raw["role"])

    @property
    def name(self) -> str:
        return str(self.raw["name"])

    @property
    def cores(self) -> float:
        return float(self.raw["cores"])

    @property
    def seconds(self) -> float:
        return float(self.raw["seconds"])

    @property
    def busiest_thread(self) -> float:
        return float(self.raw["busiest_thread"])

    @property
    def threads(self) -> tuple[tuple[str, float], ...]:
        """Name and cores of the busiest threads."""
        return tuple((str(row["name"]), float(row["cores"])) for row in self.raw["threads"])

    def state(self, letter: str) -> float:
        return float(self.raw["states"].get(letter, 0.0))

    @property
    def waits(self) -> dict[str, float]:
        return {str(name): float(share) for name, share in self.raw["waits"].items()}

    @property
    def queued(self) -> float:
        return float(self.raw["queued"])

    def rate(self, name: str) -> float | None:
        """A counter of /proc/PID/io or status per second; None if it could not be read."""
        value = self.raw["rates"].get(name)
        return None if value is None else float(value)

    @property
    def affinity(self) -> int | None:
        """On how many CPUs it may run."""
        return None if self.raw["affinity"] is None else int(self.raw["affinity"])

    @property
    def network_file_systems(self) -> tuple[str, ...]:
        """Kinds of the network file systems on which it has files open."""
        return tuple(map(str, self.raw["file_systems"]))

    @property
    def rss_mib(self) -> float:
        return float(self.raw["rss_mib"])


@dataclass(frozen=True)
class Gpu(Guarded):
    """One GPU while it was watched. Readings are means over the whole time; percentages but for those with a unit."""

    index: int
    raw: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.raw.get("name", "unknown"))

    @property
    def bus_id(self) -> str | None:
        return self.raw.get("bus_id")

    @property
    def has_metrics(self) -> bool:
        """Whether the activity of the multiprocessors was measured, by GPM or DCGM."""
        return self.mean("sm") is not None

    @property
    def why_no_metrics(self) -> str:
        return "" if self.has_metrics else str(self.raw["gpm"])

    def mean(self, name: str) -> float | None:
        """Of a reading; None if this GPU does not give it."""
        row = self.raw["readings"].get(name)
        return None if row is None else float(row["mean"])

    def number(self, name: str) -> int:
        """How often it was read."""
        return int(self.raw["readings"].get(name, {}).get("samples", 0))

    def highest(self, name: str) -> float | None:
        row = self.raw["readings"].get(name)
        return None if row is None else float(row["max"])

    @property
    def busy(self) -> float:
        """The share of the time in which some kernel ran."""
        value = self.mean("busy")
        if value is None:
            value = self.mean("graphics")
        if value is None:
            raise Unavailable(f"GPU {self.index} does not report its utilisation")
        return min(1.0, value / 100)

    def share(self, name: str) -> float | None:
        """A percentage as a share."""
        value = self.mean(name)
        return None if value is None else min(1.0, value / 100)

    @property
    def blur(self) -> float:
        """The longest time over which a reading of GPM is a mean, in seconds."""
        return float(self.raw.get("blur", 0.0))

    @property
    def memory_mib(self) -> float:
        return float(self.raw["memory_mib"])

    @property
    def pcie_mib_s(self) -> float | None:
        """Both directions together."""
        rates = [self.mean("pcie_rx_mib_s"), self.mean("pcie_tx_mib_s")]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known else None

    @property
    def nvlink_mib_s(self) -> float | None:
        rates = [rate for name in ("nvlink_rx_mib_s", "nvlink_tx_mib_s") if (rate := self.mean(name)) is not None]
        return sum(rates) if rates else None

    def still(self, name: str) -> float | None:
        """What does not change: power_limit_watts, default_watts, most_sm_mhz, pcie_gb_per_s."""
        value = self.raw.get(name)
        return None if value is None else float(value)

    @property
    def reasons(self) -> dict[int, float]:
        """Reason why the clocks were not higher, as in NVML -> share of the time."""
        return {int(bit, 16): float(share) for bit, share in self.raw["reasons"].items()}

    @property
    def processes(self) -> tuple[OnGpu, ...]:
        return tuple(OnGpu(int(pid), row) for pid, row in self.raw["processes"].items())


@dataclass(frozen=True)
class OnGpu(Guarded):
    """A process that NVML lists on a GPU. sm: the share of its time on the multiprocessors. mib: None if it is not reported."""

    pid: int
    raw: Mapping[str, Any]

    @property
    def mib(self) -> float | None:
        return None if self.raw.get("last_mib") is None else float(self.raw["last_mib"])

    @property
    def sm(self) -> float:
        return float(self.raw["sm"]) / 100
