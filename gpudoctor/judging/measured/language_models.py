"""What the measured memory bandwidth means for language models: which fit, and the lower bound on time per token."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.measured import expect
from gpudoctor.model import Figure, Model

PARAMETERS = {"7B": 7e9, "13B": 13e9, "34B": 34e9, "70B": 70e9, "405B": 405e9}
BYTES = {"fp16": 2.0, "fp8": 1.0, "int4": 0.5}
WEIGHTS_SHARE = 0.9  # of the memory; the rest is for the context, caches and temporary results
KERNEL = "memory read"


@dataclass(frozen=True)
class Machine:
    """The GPUs of one machine: how many, the smallest memory in GB, and the lowest bandwidth in GB/s."""

    gpus: int
    memory_gb: float
    gb_per_s: float


def models(facts: Facts, figures: Iterable[Figure]) -> tuple[Model, ...]:
    """Every model size at every precision; empty if the memory was not measured."""
    machine = measured(facts, figures)
    return known(lambda: tuple(rows(machine)), ()) if machine else ()


def measured(facts: Facts, figures: Iterable[Figure]) -> Machine | None:
    speeds = {figure.gpu: figure.value for figure in figures if figure.what == KERNEL and figure.gpu is not None}
    if not speeds:
        return None
    devices = [expect.device(facts, index) for index in speeds]
    sizes = known(lambda: [device.memory_mib * (1 << 20) / 1e9 for device in devices if device], [])
    return Machine(len(speeds), min(sizes), min(speeds.values())) if sizes else None


def rows(machine: Machine) -> Iterator[Model]:
    for name, parameters in PARAMETERS.items():
        for precision, size in BYTES.items():
            gigabytes = parameters * size / 1e9
            gpus = math.ceil(gigabytes / (machine.memory_gb * WEIGHTS_SHARE))
            fits = gpus <= machine.gpus
            least = gigabytes / (gpus * machine.gb_per_s) * 1000
            yield Model(name, precision, gigabytes, gpus if fits else None, round(least, 2) if fits else None)
