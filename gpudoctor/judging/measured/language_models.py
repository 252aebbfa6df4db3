"""What the measured memory bandwidth and matrix products mean for language models: which fit, with how many tokens/s.

Every number is a bound: a step of decoding reads all weights once and the KV cache of every answer, and multiplies each weight
once for each answer. https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/index.html
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.measured import expect
from gpudoctor.model import Figure, Model

BYTES = {"fp16": 2.0, "fp8": 1.0, "int4": 0.5}
KV_BYTES = 2  # of a number in the cache: fp16, whatever the weights are
WEIGHTS_SHARE = 0.9  # of the memory; the rest is for activations and temporary results
KERNEL = "memory read"
# The products that compute with weights of a precision, the best first: where there is no fp8, weights are widened to fp16.
PRODUCTS = {"fp16": ("GEMM fp16", "GEMM bf16"), "fp8": ("GEMM fp8", "GEMM fp16"), "int4": ("GEMM fp16", "GEMM bf16")}
BATCHES = (1, 8, 32, 128)
CONTEXTS = (2048, 8192, 32768, 131072)
TYPICAL_CONTEXT = CONTEXTS[0]  # tokens of each answer for which throughput is given


@dataclass(frozen=True)
class Size:
    """A usual architecture of this size. kv_width: numbers that a layer keeps of a token, for keys and as many for values."""

    name: str
    parameters: float
    layers: int
    kv_width: int

    @property
    def kv_bytes(self) -> int:
        """Of one token in the cache."""
        return 2 * self.layers * self.kv_width * KV_BYTES


# The config.json of Llama 2 7B and 13B, Code Llama 34B, Llama 3.1 70B and 405B: num_key_value_heads * head_dim.
SIZES = (
    Size("7B", 7e9, 32, 32 * 128),
    Size("13B", 13e9, 40, 40 * 128),
    Size("34B", 34e9, 48, 8 * 128),
    Size("70B", 70e9, 80, 8 * 128),
    Size("405B", 405e9, 126, 8 * 128),
)


@dataclass(frozen=True)
class Machine:
    """The GPUs of one machine: how many, the smallest memory in GB, the lowest GB/s, and the lowest TFLOP/s by figure."""

    gpus: int
    memory_gb: float
    gb_per_s: float
    tflops: Mapping[str, float] = field(default_factory=dict)

    def compute(self, precision: str) -> float | None:
        """FLOP/s of one GPU with weights of this precision; None if not measured."""
        found = (self.tflops[name] for name in PRODUCTS[precision] if name in self.tflops)
        return next((value * 1e12 for value in found), None)


def models(facts: Facts, figures: Iterable[Figure]) -> tuple[Model, ...]:
    """Every model size at every precision; empty if the memory was not measured."""
    machine = measured(facts, tuple(figures))
    return known(lambda: tuple(rows(machine)), ()) if machine else ()


def measured(facts: Facts, figures: Iterable[Figure]) -> Machine | None:
    figures = tuple(figures)
    speeds = {figure.gpu: figure.value for figure in figures if figure.what == KERNEL and figure.gpu is not None}
    if not speeds:
        return None
    devices = [expect.device(facts, index) for index in speeds]
    sizes = known(lambda: [device.memory_mib * (1 << 20) / 1e9 for device in devices if device], [])
    tflops: dict[str, float] = {}
    for figure in figures:
        if figure.unit == "TFLOP/s" and not figure.wrong:
            tflops[figure.what] = min(figure.value, tflops.get(figure.what, figure.value))
    return Machine(len(speeds), min(sizes), min(speeds.values()), tflops) if sizes else None


def rows(machine: Machine) -> Iterator[Model]:
    for size in SIZES:
        for precision, width in BYTES.items():
            weights = size.parameters * width / 1e9
            gpus = math.ceil(weights / (machine.memory_gb * WEIGHTS_SHARE))
            if gpus > machine.gpus:
                yield Model(size.name, precision, weights, None, None, kv_gigabytes=caches(size))
                continue
            yield Model(
                size.name,
                precision,
                weights,
                gpus,
                round(weights / (gpus * machine.gb_per_s) * 1000, 2),
                kv_gigabytes=caches(size),
                longest_context=int((gpus * machine.memory_gb * WEIGHTS_SHARE - weights) * 1e9 // size.kv_bytes),
                tokens_per_second=throughput(machine, size, precision, weights, gpus),
                compute_bound_batch=crossover(machine, precision, width),
            )


def caches(size: Size) -> dict[str, float]:
    """GB of the KV cache of one answer by its length in tokens."""
    return {str(tokens): round(tokens * size.kv_bytes / 1e9, 3) for tokens in CONTEXTS}


def throughput(machine: Machine, size: Size, precision: str, weights: float, gpus: int) -> dict[str, float | None]:
    """The most tokens/s by batch size, None where the caches do not fit; empty if no product was measured."""
    compute = machine.compute(precision)
    if compute is None:
        return {}
    found: dict[str, float | None] = {}
    for batch in BATCHES:
        held = weights + batch * TYPICAL_CONTEXT * size.kv_bytes / 1e9
        reading = held / (gpus * machine.gb_per_s)
        computing = 2 * size.parameters * batch / (gpus * compute)
        fits = held <= gpus * machine.memory_gb * WEIGHTS_SHARE
        found[str(batch)] = round(batch / max(reading, computing), 1) if fits else None
    return found


def crossover(machine: Machine, precision: str, width: float) -> int | None:
    """The smallest batch at which multiplying by all weights takes longer than reading them; None if no product was measured.

    Caches of long contexts are read for each answer, so with them memory may stay the bound at any batch.
    """
    compute = machine.compute(precision)
    return None if compute is None else math.ceil(width * compute / (2 * machine.gb_per_s * 1e9))
