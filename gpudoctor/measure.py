"""Measure: what to run on which GPU, and what the target gave back."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.errors import UserError
from gpudoctor.facts import Facts
from gpudoctor.facts.cuda import CudaDevice
from gpudoctor.facts.gpu import Gpu
from gpudoctor.interpreter import Target
from gpudoctor.model import Check, Reply, Skip, Snapshot

SECONDS = {"standard": 240, "full": 1200}  # for all measurements together
PATIENCE_SECONDS = 8  # how long a run that is cut off may take to hand over what it has
BUSY_PERCENT = 20
HIDDEN_MIB = 2048  # GPU memory in use that no process which can be seen from here holds

Progress = Callable[[tuple[str, ...], float], None]


@dataclass(frozen=True)
class Plan:
    """What to measure. workloads: each with the check that wants it. gpus: NVML's index, CUDA's number, and the processor cores
    near. left_alone: GPU -> why."""

    workloads: dict[str, str]
    gpus: tuple[tuple[int, int, tuple[int, ...]], ...]
    left_alone: dict[int, str] = field(default_factory=dict)
    kind: str = Skip.BUSY

    def as_value(self) -> dict[str, Any]:
        alone = {str(gpu): why for gpu, why in self.left_alone.items()}
        return {"workloads": self.workloads, "gpus": [gpu[0] for gpu in self.gpus], "left_alone": alone, "kind": self.kind}


def plan(taken: Snapshot, checks: Mapping[str, Check], only: Collection[int] = (), force: bool = False) -> Plan:
    """What these checks want measured, on the GPUs that can be: a busy one is left alone unless `force`.

    only: NVML's indices of the GPUs to measure; UserError for one that CUDA does not have.
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
            raise UserError(f"--gpus {index}: the GPUs that CUDA lists are {', '.join(map(str, sorted(devices)))}")
    wanted = {index: devices[index] for index in sorted(devices) if not only or index in only}
    obstacles = {index: obstacle(facts, index, device, force) for index, device in wanted.items()}
    free = tuple((index, device.ordinal, cores_near(facts, index)) for index, device in wanted.items() if not obstacles[index])
    return Plan(workloads, free, {index: why for index, why in obstacles.items() if why})


def index_of(facts: Facts, device: CudaDevice) -> int:
    """NVML's index of a CUDA device; CUDA's number where NVML does not know it."""
    gpu = gpu_of(facts, device.bus_id)
    return device.ordinal if gpu is None else gpu.index


def gpu_of(facts: Facts, bus_id: str) -> Gpu | None:
    try:
        return next((gpu for gpu in facts.nvml.gpus if gpu.bus_id == bus_id), None)
    except Skip:
        return None


def cores_near(facts: Facts, index: int) -> tuple[int, ...]:
    try:
        return tuple(sorted(facts.nvml.gpus[index].cpu_affinity))
    except (Skip, IndexError):
        return ()


def obstacle(facts: Facts, index: int, device: CudaDevice, force: bool) -> str:
    """Why a GPU is not measured; "" if it is."""
    try:
        if device.context_skipped:
            return "" if force else f"GPU {index} is {device.context_skipped}; --force measures it all the same"
        if device.context_code:
            return f"GPU {index} gives no CUDA context: {device.context_error}"
    except Skip as skip:
        return f"GPU {index}: {skip.reason}"
    busy = "" if force else busy_with(gpu_of(facts, device.bus_id))
    return f"GPU {index} is busy: {busy}; --force measures it all the same" if busy else ""


def busy_with(gpu: Gpu | None) -> str:
    """Who works on a GPU, as far as it can be seen from here; "" if nobody, or if NVML does not tell."""
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


def measure(where: Target, plan: Plan, level: str, seconds: float, progress: Progress) -> tuple[dict[str, Reply], int]:
    """Runs the plan in the target: what was measured, and the signal (0: none) that cut it off."""
    measured: dict[str, Reply] = {"plan": Reply("ok", plan.as_value())}
    if not plan.gpus or not plan.workloads:
        return measured, 0

    heard: dict[str, Any] = {}

    def hear(message: dict[str, Any]) -> None:
        heard.update(message)
        if "measured" in message:
            measured[message["measured"]] = Reply(**message["reply"])
        if "running" in message:
            progress(tuple(message["running"]), message["left"])

    start = time.monotonic()
    job = {"workloads": tuple(plan.workloads), "gpus": plan.gpus, "level": level, "seconds": seconds}
    signal_number = where.run(job, hear, patience=PATIENCE_SECONDS)
    measured["plan"] = Reply("ok", plan.as_value(), seconds=round(time.monotonic() - start, 2))
    if not signal_number and "end" not in heard:  # on some GPUs a workload may be missing that others have
        measured["all-measurements:all"] = Reply("died", None, "the process that runs them ended before its work did")
    for id in missing(plan, measured):
        measured[id] = Reply("cut", None, "the run was cut off")
    return measured, signal_number


def missing(plan: Plan, measured: Iterable[str]) -> list[str]:
    """Workloads of which nothing came back: the process that ran them was killed."""
    told = {id.rpartition(":")[0] for id in measured}
    return [f"{name}:all" for name in plan.workloads if name not in told]
