"""Matches the GPUs of NVML, CUDA and the PCI bus, which number them differently."""

from __future__ import annotations

from gpudoctor.facts import Facts
from gpudoctor.facts.cuda import CudaDevice
from gpudoctor.facts.gpu import Gpu
from gpudoctor.model import Skip


def index_of(facts: Facts, device: CudaDevice) -> int:
    """NVML's index of a CUDA device; CUDA's number if NVML does not know it."""
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
