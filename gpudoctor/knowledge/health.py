"""The meaning of NVML health values, and the rates of links: `health.yaml`."""

from __future__ import annotations

from functools import cache

from gpudoctor.knowledge.tables import Row, Table, load


class ClockReason(Row, frozen=True):
    """A reason for lowered clocks. `benign` reasons are not faults; None if the bit is not known."""

    bit: int
    name: str
    meaning: str
    field: str = ""  # of nvidia-smi --query-gpu=clocks_event_reasons.<field>
    benign: bool | None = None
    advice: str = ""


class Mode(Row, frozen=True):
    """One value of an NVML enumeration such as "compute_mode" or "gpu_recovery_action"."""

    group: str
    value: int
    name: str
    meaning: str


class FabricHealth(Row, frozen=True):
    """One field of the fabric health mask."""

    name: str
    shift: int
    mask: int
    meaning: str


class PcieGeneration(Row, frozen=True):
    """Line rate of one PCIe generation; `lane_gb_per_s` is one lane in one direction after encoding."""

    generation: int
    gt_per_s: float
    lane_gb_per_s: float
    encoding: str


class NvlinkGeneration(Row, frozen=True):
    """One NVLink version; `link_gb_per_s` is one link in one direction."""

    version: int
    links: int
    link_gb_per_s: float
    gpus: str


class HealthTable(Table, frozen=True):
    clock_reasons: tuple[ClockReason, ...]
    modes: tuple[Mode, ...]
    fabric_health: tuple[FabricHealth, ...]
    pcie: tuple[PcieGeneration, ...]
    nvlink: tuple[NvlinkGeneration, ...]


@cache
def table() -> HealthTable:
    return load("health", HealthTable)


def clock_reasons(mask: int) -> tuple[ClockReason, ...]:
    """The reasons in an NVML mask, lowest bit first; an unknown bit gives a reason named after it."""
    known = {row.bit: row for row in table().clock_reasons}
    bits = (1 << index for index in range(mask.bit_length()) if mask >> index & 1)
    return tuple(known.get(bit) or _unknown(bit) for bit in bits)


def _unknown(bit: int) -> ClockReason:
    return ClockReason(bit=bit, name=f"0x{bit:x}", meaning="Unknown to gpudoctor.", source=(), verified=False)


def mode(group: str, value: int) -> Mode | None:
    return next((row for row in table().modes if (row.group, row.value) == (group, value)), None)


def fabric_health(mask: int) -> dict[str, int]:
    """Field -> value of an NVML fabric health mask; 0 means not applicable."""
    return {row.name: mask >> row.shift & row.mask for row in table().fabric_health}


def pcie_gb_per_s(generation: int, width: int) -> float | None:
    """The rate of a PCIe link in one direction, after encoding and before packet overhead."""
    row = next((row for row in table().pcie if row.generation == generation), None)
    return row.lane_gb_per_s * width if row else None


def nvlink_gb_per_s(version: int, links: int) -> float | None:
    """The rate of this number of NVLinks in one direction."""
    row = next((row for row in table().nvlink if row.version == version), None)
    return row.link_gb_per_s * links if row else None
