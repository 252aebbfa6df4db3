"""Matrix products through torch (cuBLAS) in each precision of the GPU, verified in a higher one."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from gpudoctor.worker.measuring import torch_gpu
from gpudoctor.worker.measuring.bench import Bench, Workload

SIZES = (8192, 4096, 2048, 1024)
PROBE = 2048  # its time determines how large a product can be
MOST_MS = 40.0  # of one product
# At their power limit, GPUs start faster than they can sustain.
WARM_UP_MS = 200
MOST_ROUNDS = 6
BYTES_OF_SIZE = 40  # for each element of a matrix: three of eight bytes, copies for the verification, the cache's flush
ROWS = 64  # rows of the result that are verified, one in each stripe of tiles
FP8_SUMS = 2.0**-14  # Hopper's tensor cores keep 14 bits when summing e4m3: https://arxiv.org/abs/2412.19437, 3.3.2
SETTINGS = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "TORCH_BLAS_PREFER_CUBLASLT")


class Precision(NamedTuple):
    """dtype: torch's. rounded: how the result, or the input, is rounded. summed: the error of one addition."""

    dtype: str
    rounded: str
    summed: float = torch_gpu.ROUNDING["fp32"]
    least_capability: Tuple[int, int] = (0, 0)


PRECISIONS = {
    "fp64": Precision("float64", "fp64", torch_gpu.ROUNDING["fp64"]),
    "fp32": Precision("float32", "fp32"),
    "tf32": Precision("float32", "tf32", least_capability=(8, 0)),
    "fp16": Precision("float16", "fp16", least_capability=(5, 3)),
    "bf16": Precision("bfloat16", "bf16", least_capability=(8, 0)),
    "fp8": Precision("float8_e4m3fn", "bf16", FP8_SUMS, least_capability=(8, 9)),
}


def run(bench: Bench) -> None:
    """For each precision: {"tflops", "milliseconds", "spread", "size", "relative_error", "allowed_error", "wrong"}.

    torch: its version and settings. libraries: the loaded libraries.
    """
    measure(bench, torch_gpu.gpu(bench))


def measure(bench: Bench, device: Any) -> None:
    import torch

    bench.keep("torch", **settings(torch))
    for name, precision in PRECISIONS.items():
        if torch_gpu.capability() < precision.least_capability or not hasattr(torch, precision.dtype):
            continue
        bench.step("operands " + name)
        with tf32(torch, name == "tf32"):
            one, other = operands(torch, precision, size_for(torch, precision, device), device)
            with bench.section(name) as values:
                timed = torch_gpu.timed(functools.partial(product, torch, one, other), device, WARM_UP_MS, MOST_ROUNDS)
                values.update(timed.values(2.0 * one.shape[0] ** 3), size=one.shape[0])
        bench.step("verifying " + name)
        bench.keep(name, **values, **checked(torch, precision, one, other, timed.result))
    bench.keep("libraries", cublas=torch_gpu.loaded("libcublas.so"), cublas_lt=torch_gpu.loaded("libcublasLt.so"))


def settings(torch: Any) -> Dict[str, Any]:
    """torch's settings as the user has them."""
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "environment": {name: os.environ[name] for name in SETTINGS if name in os.environ},
    }


@contextlib.contextmanager
def tf32(torch: Any, on: bool) -> Iterator[None]:
    """Sets whether fp32 products may be rounded to TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if on else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def size_for(torch: Any, precision: Precision, device: Any) -> int:
    """The largest size that fits in memory and whose product is fast enough."""
    room = torch_gpu.free_bytes()
    one, other = operands(torch, precision, min(PROBE, largest(room)), device)
    product(torch, one, other)  # loads the library
    times = [torch_gpu.elapsed(lambda: product(torch, one, other)) for _ in range(3)]
    return largest(room, min(times) / one.shape[0] ** 3)


def largest(room: int, milliseconds_of_cube: float = 0.0) -> int:
    """milliseconds_of_cube: the time of a product divided by the third power of its size."""
    fitting = [size for size in SIZES if BYTES_OF_SIZE * size * size <= room and milliseconds_of_cube * size**3 <= MOST_MS]
    return fitting[0] if fitting else SIZES[-1]


def operands(torch: Any, precision: Precision, size: int, device: Any) -> Tuple[Any, Any]:
    """Two square matrices of random normal numbers; for fp8 the second is column-major, as the library requires."""
    dtype = getattr(torch, precision.dtype)
    if precision.dtype.startswith("float8"):
        one, other = (torch.randn(size, size, device=device, dtype=torch.bfloat16).to(dtype) for _ in range(2))
        return one, other.t()
    one, other = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return one, other


def product(torch: Any, one: Any, other: Any) -> Any:
    if one.element_size() > 1:
        return one @ other
    scale = torch.ones((), device=one.device)
    settings = {"scale_a": scale, "scale_b": scale, "out_dtype": torch.bfloat16, "use_fast_accum": True}
    found = torch._scaled_mm(one, other, **settings)
    return found[0] if isinstance(found, tuple) else found  # torch 2.4 also returns the largest number


def checked(torch: Any, precision: Precision, one: Any, other: Any, found: Any) -> Dict[str, Any]:
    """Compares a sample of rows with a product in fp64; for a product in fp64 a few elements, summed exactly."""
    step = one.shape[0] // ROWS + 1
    allowed = torch_gpu.allowed_error(precision.rounded, one.shape[1], precision.summed)
    if precision.rounded != "fp64":
        return torch_gpu.verdict(found[::step], exactly(one[::step]) @ exactly(other), allowed)
    rows, columns, square = one[::step].tolist(), other[:, ::step].t().tolist(), found[::step, ::step].cpu()
    pairs = [(number, (7 * number + 3) % len(rows)) for number in range(len(rows))]
    exact = [exact_sum(rows[row], columns[column]) for row, column in pairs]
    picked = torch.stack([square[pair] for pair in pairs])
    return torch_gpu.verdict(picked, torch.tensor(exact, dtype=torch.float64), allowed)


def exactly(matrix: Any) -> Any:
    """Converts to fp64; from fp8 through fp32, since it supports few conversions."""
    return (matrix.float() if matrix.element_size() == 1 else matrix).double()


def exact_sum(row: List[float], column: List[float]) -> float:
    return math.fsum(x * y for x, y in zip(row, column))


WORKLOAD = Workload(run, runtime="torch", typical_seconds=3.5)
