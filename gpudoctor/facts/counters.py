"""The error counters of each GPU at one moment, to be compared with those of another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gpudoctor.facts.known import known
from gpudoctor.model import Skip

if TYPE_CHECKING:
    from gpudoctor.facts import Facts
    from gpudoctor.facts.gpu import Gpu

# They are stored on the board. All others begin again with each start of the driver.
LASTING = ("uncorrectable ECC errors", "corrected ECC errors", "remapped rows")
OF_PCIE = {
    "PCIe recoveries": "FieldValues.PCIE_L0_TO_RECOVERY_COUNTER",
    "corrected PCIe errors": "FieldValues.PCIE_COUNT_CORRECTABLE_ERRORS",
    "fatal PCIe errors": "FieldValues.PCIE_COUNT_FATAL_ERROR",
}
OF_LINKS = {
    "replay": "NVLink replays",
    "recovery": "NVLink recoveries",
    "crc": "NVLink CRC errors",
    "failed_recovery": "failed NVLink recoveries",
    "effective": "effective NVLink errors",
}


@dataclass(frozen=True)
class Counters:
    """taken: UTC, ISO 8601. boot: the same for all moments between two boots; "" if unknown. uptime: seconds, None if unknown.

    index: of the GPU at that moment. values: counter -> count.
    """

    taken: str
    boot: str
    uptime: float | None
    index: int
    values: Mapping[str, int]

    @property
    def time(self) -> datetime:
        return datetime.fromisoformat(self.taken.replace("Z", "+00:00"))

    @property
    def plain(self) -> dict[str, Any]:
        return {"taken": self.taken, "boot": self.boot, "uptime": self.uptime, "index": self.index, "values": dict(self.values)}


def of(facts: Facts) -> dict[str, Counters]:
    """UUID -> its counters."""
    boot = known(lambda: facts.inventory.boot, "")
    uptime = known(lambda: facts.system.uptime_seconds)
    none: dict[str, Gpu] = {}
    found = {}
    for gpu in known(lambda: facts.nvml.reachable, none).values():
        uuid, values = _uuid(gpu), _values(gpu)
        if uuid and values:
            found[uuid] = Counters(facts.taken, boot, uptime, gpu.index, values)
    return found


def kept(given: Mapping[str, Any]) -> Counters | None:
    """What `plain` made; None for what is not of this form."""
    values, taken, uptime = given.get("values"), given.get("taken"), given.get("uptime")
    if not isinstance(values, dict) or not isinstance(taken, str):
        return None
    counts = {str(name): count for name, count in values.items() if isinstance(count, int)}
    seconds = float(uptime) if isinstance(uptime, int | float) else None
    index = given.get("index")
    return Counters(taken, str(given.get("boot") or ""), seconds, index if isinstance(index, int) else 0, counts)


def _uuid(gpu: Gpu) -> str:
    return known(lambda: gpu.uuid, "")


def _values(gpu: Gpu) -> dict[str, int]:
    readings = {
        "uncorrectable ECC errors": lambda: gpu.ecc_aggregate_uncorrected,
        "corrected ECC errors": lambda: gpu.ecc_aggregate_corrected,
        "remapped rows": lambda: gpu.remapped_rows.corrected + gpu.remapped_rows.uncorrected,
        "PCIe replays": lambda: gpu.pcie_replays,
    }
    values = {name: known(read) for name, read in readings.items()}
    values |= {name: _counted(gpu, path) for name, path in OF_PCIE.items()}
    values |= _of_links(gpu)
    return {name: count for name, count in values.items() if isinstance(count, int) and count >= 0}


def _counted(gpu: Gpu, path: str) -> int | None:
    try:
        return int(gpu.get(path))
    except (Skip, TypeError, ValueError):
        return None


def _of_links(gpu: Gpu) -> dict[str, int]:
    """The sums of all links."""
    errors = [link.errors for link in known(lambda: gpu.nvlinks, ()) if link.active and link.errors]
    return {
        name: sum(each[kind] for each in errors if kind in each)
        for kind, name in OF_LINKS.items()
        if any(kind in each for each in errors)
    }
