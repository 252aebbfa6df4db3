"""What to measure on which GPU. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.errors import UserError
from gpudoctor.facts import Facts
from gpudoctor.facts.cuda import CudaDevice
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.join import cores_near, gpu_of, index_of
from gpudoctor.model import Check, Skip, Snapshot

BUSY_PERCENT = 20
HIDDEN_MIB = 2048  # GPU memory in use that belongs to no visible process


@dataclass(frozen=True)
class Plan:
    """What to measure. workloads: each with the check that needs it. gpus: NVML's index, CUDA's number, and the nearby CPU cores.
    left_alone: GPU -> why it is not measured."""

    workloads: dict[str, str]
    gpus: tuple[tuple[int, int, tuple[int, ...]], ...]
    left_alone: dict[int, str] = field(default_factory=dict)
    kind: str = Skip.BUSY

    def as_value(self) -> dict[str, Any]:
        alone = {str(gpu): why for gpu, why in self.left_alone.items()}
        return {"workloads": self.workloads, "gpus": [gpu[0] for gpu in self.gpus], "left_alone": alone, "kind": self.kind}


def plan(taken: Snapshot, checks: Mapping[str, Check], only: Collection[int] = (), force: bool = False) -> Plan:
    """Plans the measurements of these checks, on all GPUs that can be measured; a busy one is left out unless `force`.

    only: NVML indices of the GPUs to measure; UserError for a GPU that CUDA does not have.
    """
    workloads = {name: id for id, check in checks.items() for name in check.workloads}
    facts = Facts(taken)
    try:
        devices = {index_of(facts, device): device for device in facts.cuda.devices}
    except Skip as skip:
        return Plan(workloads, (), {-1: skip.reason}, skip.kind)
    if not devices:
        return Plan(workloads, (), {-1: "CUDA lists no GPU"}, Skip.NOT_APPLICABLE)
    for index in only:
        if index not in devices:
            raise UserError(f"--gpus {index}: CUDA lists only the GPUs {', '.join(map(str, sorted(devices)))}")
    wanted = {index: devices[index] for index in sorted(devices) if not only or index in only}
    obstacles = {index: obstacle(facts, index, device, force) for index, device in wanted.items()}
    free = tuple((index, device.ordinal, cores_near(facts, index)) for index, device in wanted.items() if not obstacles[index])
    return Plan(workloads, free, {index: why for index, why in obstacles.items() if why})


def obstacle(facts: Facts, index: int, device: CudaDevice, force: bool) -> str:
    """Why a GPU is not measured; "" if it is."""
    try:
        if device.context_skipped:
            return "" if force else f"GPU {index} is {device.context_skipped}; --force measures it anyway"
        if device.context_code:
            return f"GPU {index} gives no CUDA context: {device.context_error}"
    except Skip as skip:
        return f"GPU {index}: {skip.reason}"
    busy = "" if force else busy_with(gpu_of(facts, device.bus_id))
    return f"GPU {index} is busy: {busy}; --force measures it anyway" if busy else ""


def busy_with(gpu: Gpu | None) -> str:
    """Which processes use a GPU, as far as visible; "" if none, or if NVML does not report it."""
    try:
        return _busy_with(gpu) if gpu else ""
    except Skip:
        return ""


def _busy_with(gpu: Gpu) -> str:
    processes = [process for process in gpu.processes if process.kind != "graphics"]
    if processes:
        return ", ".join(
            f"{process.name or 'a process'} (pid {process.pid}) holds {_held(process.used_mib)}" for process in processes
        )
    graphics = sum(process.used_mib or 0 for process in gpu.processes)
    try:
        if not gpu.processes and gpu.utilization.gpu_percent >= BUSY_PERCENT:
            return f"{gpu.utilization.gpu_percent} % of its time, by a process that cannot be seen from here"
    except Skip:
        pass
    hidden = gpu.memory_used_mib - graphics
    return f"{hidden} MiB of its memory are held by a process that cannot be seen from here" if hidden > HIDDEN_MIB else ""


def _held(mib: int | None) -> str:
    return "memory" if mib is None else f"{mib} MiB"
