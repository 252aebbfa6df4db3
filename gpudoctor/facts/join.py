"""Matches the GPUs of NVML, CUDA and the PCI bus, which number them differently."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.cuda import CudaDevice
from gpudoctor.facts.gpu import Gpu
from gpudoctor.model import Skip


def index_of(facts: Facts, device: CudaDevice) -> int:
    """NVML's index of a CUDA device; CUDA's number if NVML does not know it."""
    gpu = gpu_of(facts, device.bus_id)
    return device.ordinal if gpu is None else gpu.index


def gpu_of(facts: Facts, bus_id: str) -> Gpu | None:
    (known,) = facts.once(_by_bus_id)
    return known.get(bus_id)


def _by_bus_id(facts: Facts) -> Iterator[dict[str, Gpu]]:
    """The GPUs up to the first that does not say where it is."""
    found: dict[str, Gpu] = {}
    with contextlib.suppress(Skip):
        for gpu in facts.nvml.gpus:
            found.setdefault(gpu.bus_id, gpu)
    yield found


def cores_near(facts: Facts, index: int) -> tuple[int, ...]:
    try:
        return tuple(sorted(facts.nvml.gpus[index].cpu_affinity))
    except (Skip, IndexError):
        return ()
