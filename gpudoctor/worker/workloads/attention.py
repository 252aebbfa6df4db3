"""torch's scaled_dot_product_attention, causal: the default choice and each implementation alone, verified in fp64."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, NamedTuple, Optional

from gpudoctor.worker.measuring import torch_gpu
from gpudoctor.worker.measuring.bench import Bench, Workload
from gpudoctor.worker.measuring.torch_gpu import ROUNDING

IMPLEMENTATIONS = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "math": "MATH",
}
DEFAULT = "default"
AMPERE = (8, 0)
# Scores, probabilities and the result are each rounded: the largest error of many elements, as a fraction of its row's rms.
ROUNDINGS = 48
MOST_WORDS = 400


class Shape(NamedTuple):
    """The shape of queries, keys and values."""

    batch: int
    heads: int
    length: int
    width: int

    @property
    def operations(self) -> float:
        """Two products, half of which the mask leaves out."""
        return 2.0 * self.batch * self.heads * self.length**2 * self.width

    @property
    def bytes_of_math(self) -> float:
        """The memory of the implementation that stores all scores: several times, in fp32."""
        return 16.0 * self.batch * self.heads * self.length**2


SHAPE = Shape(batch=4, heads=16, length=2048, width=128)
SMALL = Shape(batch=1, heads=4, length=1024, width=128)


def run(bench: Bench) -> None:
    """default, flash, efficient, cudnn, math: {"milliseconds", "tflops", "spread", "relative_error", "allowed_error", "wrong"}.

    Or {"unavailable": why}. choice: {"implementation": of default, "dtype"}.
    """
    device = torch_gpu.gpu(bench)
    shape = SHAPE if torch_gpu.free_bytes() > 2 * SHAPE.bytes_of_math else SMALL
    measure(bench, device, "bf16" if torch_gpu.capability() >= AMPERE else "fp16", shape)


def measure(bench: Bench, device: Any, dtype: str, shape: Shape) -> None:
    import torch

    torch_dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    inputs = [torch.randn(shape, device=device, dtype=torch_dtype) for _ in range(3)]
    attend = functools.partial(torch.nn.functional.scaled_dot_product_attention, *inputs, is_causal=True)
    exact = expected(*(each[:: max(1, shape.batch - 1), :: max(1, shape.heads - 1)] for each in inputs))
    allowed = ROUNDINGS * ROUNDING[dtype]
    bench.keep("choice", implementation=chosen(*inputs), dtype=dtype)
    for name in (DEFAULT, *IMPLEMENTATIONS):
        bench.step(name)
        work = attend if name == DEFAULT else alone(name, attend)
        unavailable = "this version of torch does not have it" if work is None else why_not(name, work)
        if work is None or unavailable:
            bench.keep(name, unavailable=unavailable)
            continue
        with bench.section(name) as values:
            timed = torch_gpu.timed(work, device)
            values.update(timed.values(shape.operations))
        sample = timed.result[:: max(1, shape.batch - 1), :: max(1, shape.heads - 1)]
        bench.keep(name, **values, **torch_gpu.verdict(sample, exact, allowed))


def alone(name: str, attend: Callable[[], Any]) -> Optional[Callable[[], Any]]:
    """Attention with only this implementation; None if this torch does not have it."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, IMPLEMENTATIONS[name], None)
    if backend is None:
        return None

    def work() -> Any:
        with sdpa_kernel(backend):
            return attend()

    return work


def why_not(name: str, work: Callable[[], Any]) -> str:
    """Why torch refuses an implementation here, "" if it does not; the default one has to work."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            work()
            torch_gpu.synchronize()
        except RuntimeError as failure:
            if name == DEFAULT or "CUDA error" in str(failure):
                raise
            words = [str(warning.message).partition(" (Triggered")[0] for warning in told]
            return "; ".join([*words, str(failure)])[:MOST_WORDS]
    return ""


def chosen(query: Any, key: Any, value: Any) -> str:
    """The implementation that torch selects by default; "" if unknown."""
    import torch
    from torch.nn.attention import SDPBackend

    ask = getattr(torch, "_fused_sdp_choice", None)
    if ask is None:
        return ""
    known = {name: getattr(SDPBackend, word) for name, word in IMPLEMENTATIONS.items() if hasattr(SDPBackend, word)}
    number = ask(query, key, value, is_causal=True)
    return next((name for name, backend in known.items() if backend.value == number), "")


def expected(query: Any, key: Any, value: Any) -> Any:
    """The definition, computed in fp64."""
    import torch

    query, key, value = query.double(), key.double(), value.double()
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ value


WORKLOAD = Workload(run, runtime="torch", typical_seconds=2)
