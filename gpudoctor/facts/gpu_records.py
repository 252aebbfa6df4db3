"""Larger answers of NVML about one GPU, each a record built by its `of`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.nvml_values import (
    FABRIC_HEALTH,
    FABRIC_STATES,
    FABRIC_SUMMARIES,
    LINK_ERROR_FIELDS,
    MIB,
    NVLINK_REMOTES,
    NVLINK_VERSIONS,
    answered,
    bus_id,
    checked,
)
from gpudoctor.model import Unavailable


class Mode(NamedTuple):
    """A mode that takes effect at the next reset."""

    current: bool
    pending: bool

    @classmethod
    def of(cls, answer: list[int]) -> Mode:
        return cls(bool(answer[0]), bool(answer[1]))


@dataclass(frozen=True)
class RemappedRows(Guarded):
    """Memory rows replaced by spares; pending: a reset is needed; failure: no spare row was left."""

    corrected: int
    uncorrected: int
    pending: bool
    failure: bool

    @classmethod
    def of(cls, answer: list[int]) -> RemappedRows:
        return cls(answer[0], answer[1], bool(answer[2]), bool(answer[3]))


@dataclass(frozen=True)
class RetiredPages:
    """The number of retired memory pages, by cause (GPUs before Ampere)."""

    single_bit: int
    double_bit: int


@dataclass(frozen=True)
class SramErrors(Guarded):
    """ECC errors of caches and registers; sources: the aggregate uncorrected errors by unit."""

    volatile_corrected: int
    aggregate_uncorrected: int
    threshold_exceeded: bool
    sources: dict[str, int]

    @classmethod
    def of(cls, answer: dict[str, int]) -> SramErrors:
        units = ("L2", "Sm", "Pcie", "Mcu", "Other")
        return cls(
            volatile_corrected=answer["volatileCor"],
            aggregate_uncorrected=answer["aggregateUncParity"] + answer["aggregateUncSecDed"],
            threshold_exceeded=bool(answer["bThresholdExceeded"]),
            sources={unit.lower(): answer[f"aggregateUncBucket{unit}"] for unit in units},
        )


@dataclass(frozen=True)
class Utilization:
    gpu_percent: int
    memory_percent: int


@dataclass(frozen=True)
class Process(Guarded):
    """A process on a GPU. name and ours (same user) are None if /proc does not show it, used_mib if NVML does not."""

    pid: int
    name: str | None
    ours: bool | None
    used_mib: int | None
    kind: str  # compute, graphics or mps

    @classmethod
    def of(cls, entry: dict[str, Any], kind: str) -> Process:
        used = entry.get("usedGpuMemory")
        return cls(entry["pid"], entry.get("name"), entry.get("ours"), None if used is None else used // MIB, kind)


@dataclass(frozen=True)
class MigDevice(Guarded):
    name: str
    uuid: str
    gpu_instance: int
    compute_instance: int
    memory_mib: int

    @classmethod
    def of(cls, answers: dict[str, Any]) -> MigDevice:
        value = {name: checked(answer, f"{name} of a MIG device") for name, answer in answers.items() if name != "Attributes"}
        for name in ("GpuInstanceId", "ComputeInstanceId", "MemoryInfo"):
            if name not in value:
                raise Unavailable(f"{name} of a MIG device is unknown")
        return cls(
            value.get("Name", ""),  # tables of nvidia-smi show neither
            value.get("UUID", ""),
            checked(value.get("GpuInstanceId", {"absent": True}), "GpuInstanceId"),
            checked(value.get("ComputeInstanceId", {"absent": True}), "ComputeInstanceId"),
            checked(value.get("MemoryInfo", {"absent": True}), "MemoryInfo")["total"] // MIB,
        )


BIT_ERROR_RATES = ("NVLINK_COUNT_EFFECTIVE_BER", "NVLINK_COUNT_SYMBOL_BER")


@dataclass(frozen=True)
class NvLink(Guarded):
    """One link; errors is None if NVML has no counters for it, remote is "gpu", "switch", "npu" or None.

    Since NVLink 5: recoveries, which the link survived; and the share of wrong bits after correction, the larger one of effective
    and symbol. None if not known.
    """

    link: int
    active: bool
    version: str | None
    remote: str | None
    remote_bus_id: str | None
    mb_per_s: int | None
    errors: dict[str, int] | None
    recoveries: int | None = None
    bit_error_rate: float | None = None

    @classmethod
    def of(cls, link: str, answers: dict[str, Any]) -> NvLink:
        fields = answers.get("FieldValues", {})
        pci, speed = answers.get("RemotePciInfo", {"absent": True}), fields.get("NVLINK_GET_SPEED", {})
        return cls(
            link=int(link),
            active=bool(answers["State"]),
            version=NVLINK_VERSIONS.get(_number(answers.get("Version"))),
            remote=NVLINK_REMOTES.get(_number(answers.get("RemoteDeviceType"))),
            remote_bus_id=bus_id(pci["busId"]) if answered(pci) and pci.get("domain", -1) < 0xFFFFFFFF else None,
            mb_per_s=speed if isinstance(speed, int) else None,
            errors=_link_errors(fields, answers.get("ErrorCounter", {})) or None,
            recoveries=_counted(fields, "NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS"),
            bit_error_rate=max(
                (_rate(fields[name]) for name in BIT_ERROR_RATES if isinstance(fields.get(name), int)), default=None
            ),
        )


def _counted(fields: dict[str, Any], name: str) -> int | None:
    return fields[name] if isinstance(fields.get(name), int) else None


def _rate(encoded: int) -> float:
    """A bit error rate of NVML: a mantissa of 4 bits, then a negative power of ten in 8 bits. No errors are 15e-254."""
    return (encoded >> 8 & 0xF) * 10.0 ** -(encoded & 0xFF)


def _link_errors(fields: dict[str, Any], counters: dict[str, Any]) -> dict[str, int]:
    found = {name: counters.get(name) for name in ("replay", "recovery")} | {"crc": counters.get("crc_flit")}
    found |= {name: fields[field] for name, field in LINK_ERROR_FIELDS.items() if isinstance(fields.get(field), int)}
    return {name: count for name, count in found.items() if isinstance(count, int)}


def _number(answer: Any) -> int:
    return answer if isinstance(answer, int) else -1


@dataclass(frozen=True)
class Fabric(Guarded):
    """The GPU's state in an NVSwitch fabric: healthy means state "completed" and status 0, without problems.

    summary is "healthy", "unhealthy", "limited capacity", or None if the driver does not report one.
    """

    state: str
    status: int
    clique: int
    summary: str | None
    problems: tuple[str, ...]

    @classmethod
    def of(cls, answer: dict[str, int]) -> Fabric:
        mask = answer.get("healthMask", 0)
        problems = (meanings.get(mask >> shift & width) for shift, width, meanings in FABRIC_HEALTH)
        return cls(
            state=FABRIC_STATES.get(answer["state"], f"state {answer['state']}"),
            status=answer["status"],
            clique=answer["cliqueId"],
            summary=FABRIC_SUMMARIES.get(answer.get("healthSummary", 0)),
            problems=tuple(problem for problem in problems if problem),
        )


@dataclass(frozen=True)
class Licence(Guarded):
    """A vGPU software licence; licensed is False if the vGPU runs without one, which slows it down."""

    product: str
    enabled: bool
    licensed: bool

    @classmethod
    def of(cls, feature: dict[str, Any]) -> Licence:
        return cls(
            feature["productName"],
            bool(feature["featureEnabled"]),
            bool(feature["featureState"]),
        )
