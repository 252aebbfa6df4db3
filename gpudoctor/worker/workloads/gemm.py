"""Matrix products through torch (cuBLAS) in each precision of the GPU, verified in a higher one."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from gpudoctor.worker.measuring import low_precision, torch_gpu
from gpudoctor.worker.measuring.bench import Bench, Workload

SIZES = (8192, 4096, 2048, 1024)
PROBE = 2048  # its time determines how large a product can be
MOST_MS = 40.0  # of one product
# At their power limit, GPUs start faster than they can sustain.
WARM_UP_MS = 200
MOST_ROUNDS = 6
BYTES_OF_SIZE = 40  # for each element of a matrix: three of eight bytes, copies for the verification, the cache's flush
MOST_CHARACTERS = 300  # of a refusal
ROWS = 64  # rows of the result that are verified, one in each stripe of tiles
FP8_SUMS = 2.0**-14  # Hopper's tensor cores keep 14 bits when summing e4m3: https://arxiv.org/abs/2412.19437, 3.3.2
SETTINGS = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "TORCH_BLAS_PREFER_CUBLASLT")


class Precision(NamedTuple):
    """dtype: torch's. rounded: how the result, or the input, is rounded; "" if it is exact. summed: the error of one addition.

    is_extra: torch or the library may refuse it; it is then reported as unavailable. level: from which it is measured.
    """

    dtype: str
    rounded: str
    summed: float = torch_gpu.ROUNDING["fp32"]
    least_capability: Tuple[int, int] = (0, 0)
    is_extra: bool = False
    level: str = "standard"


PRECISIONS = {
    "fp64": Precision("float64", "fp64", torch_gpu.ROUNDING["fp64"]),
    "fp32": Precision("float32", "fp32"),
    "tf32": Precision("float32", "tf32", least_capability=(8, 0)),
    "fp16": Precision("float16", "fp16", least_capability=(5, 3)),
    "bf16": Precision("bfloat16", "bf16", least_capability=(8, 0)),
    "fp8": Precision("float8_e4m3fn", "bf16", FP8_SUMS, (8, 9)),
    "fp8 e5m2": Precision("float8_e5m2", "bf16", FP8_SUMS, (8, 9), is_extra=True, level="full"),
    "int8": Precision("int8", "", 0.0, (7, 5), is_extra=True, level="full"),
    "nvfp4": Precision("float4_e2m1fn_x2", "bf16", FP8_SUMS, (10, 0), is_extra=True, level="full"),
    "mxfp4": Precision("float4_e2m1fn_x2", "bf16", FP8_SUMS, (10, 0), is_extra=True, level="full"),
}
SCALES = {"nvfp4": "float8_e4m3fn", "mxfp4": "float8_e8m0fnu"}
# What torch and cuBLAS say of a product that they do not have.
REFUSALS = re.compile(r"NOT_SUPPORTED|(?:not|only) (?:yet )?(?:supported|implemented|compiled)")


def run(bench: Bench) -> None:
    """For each precision: {"tflops", "milliseconds", "spread", "size", "relative_error", "allowed_error", "wrong"}, or
    {"unavailable": why}. For int8 "tflops" counts operations on whole numbers.

    torch: its version and settings. libraries: the loaded libraries.
    """
    measure(bench, torch_gpu.gpu(bench))


def measure(bench: Bench, device: Any) -> None:
    import torch

    bench.keep("torch", **settings(torch))
    for name, precision in PRECISIONS.items():
        if precision.level == "full" and bench.level != "full":
            continue
        why = lacking(torch, name)
        if not why:
            try:
                one_precision(bench, torch, name, device)
            except (RuntimeError, NotImplementedError, AttributeError, ValueError) as failure:
                if not precision.is_extra or not REFUSALS.search(str(failure)):
                    raise
                why = " ".join(str(failure).split())[:MOST_CHARACTERS]
        if why and precision.is_extra:
            bench.keep(name, unavailable=why)
    bench.keep("libraries", cublas=torch_gpu.loaded("libcublas.so"), cublas_lt=torch_gpu.loaded("libcublasLt.so"))


def lacking(torch: Any, name: str) -> str:
    """Why this GPU or torch does not have a precision; "" if it does."""
    precision = PRECISIONS[name]
    capability, dtypes = torch_gpu.capability(), filter(None, (precision.dtype, SCALES.get(name)))
    if capability < precision.least_capability:
        needed = "%d.%d" % precision.least_capability
        return "the GPU has compute capability %d.%d, and %s needs %s" % (*capability, name, needed)
    missing = [dtype for dtype in dtypes if not hasattr(torch, dtype)]
    return "torch %s has no %s" % (torch.__version__, missing[0]) if missing else ""


def one_precision(bench: Bench, torch: Any, name: str, device: Any) -> None:
    bench.step("operands " + name)
    with tf32(torch, name == "tf32"):
        matrices = operands(torch, name, size_for(torch, name, device), device)
        size = matrices[0].shape[0]
        with bench.section(name) as values:
            timed = torch_gpu.timed(functools.partial(product, torch, *matrices), device, WARM_UP_MS, MOST_ROUNDS)
            values.update(timed.values(2.0 * size**3), size=size)
    bench.step("verifying " + name)
    bench.keep(name, **values, **checked(torch, PRECISIONS[name], matrices[0], matrices[1], timed.result))


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


def size_for(torch: Any, name: str, device: Any) -> int:
    """The largest size that fits in memory and whose product is fast enough."""
    room = torch_gpu.free_bytes()
    matrices = operands(torch, name, min(PROBE, largest(room)), device)
    product(torch, *matrices)  # loads the library
    times = [torch_gpu.elapsed(lambda: product(torch, *matrices)) for _ in range(3)]
    return largest(room, min(times) / matrices[0].shape[0] ** 3)


def largest(room: int, milliseconds_of_cube: float = 0.0) -> int:
    """milliseconds_of_cube: the time of a product divided by the third power of its size."""
    fitting = [size for size in SIZES if BYTES_OF_SIZE * size * size <= room and milliseconds_of_cube * size**3 <= MOST_MS]
    return fitting[0] if fitting else SIZES[-1]


def operands(torch: Any, name: str, size: int, device: Any) -> Tuple[Any, ...]:
    """Two square matrices of random numbers, and the scale of those that have one."""
    precision = PRECISIONS[name]
    if name in SCALES:
        return low_precision.quarters(torch, SCALES[name], size, device)
    if precision.dtype.startswith("float8"):  # products of two e5m2 do not exist: gradients in e5m2 meet weights in e4m3
        return low_precision.eighths(torch, ("float8_e4m3fn", precision.dtype), size, device)
    if precision.dtype == "int8":
        return low_precision.whole(torch, size, device)
    one, other = (torch.randn(size, size, device=device, dtype=getattr(torch, precision.dtype)) for _ in range(2))
    return one, other


def product(torch: Any, one: Any, other: Any, *scale: Any) -> Any:
    return one @ other if one.element_size() > 1 else low_precision.product(torch, one, other, *scale)


def checked(torch: Any, precision: Precision, one: Any, other: Any, found: Any) -> Dict[str, Any]:
    """Compares a sample of rows with a product in fp64; for a product in fp64 a few elements, summed exactly."""
    step = one.shape[0] // ROWS + 1
    allowed = torch_gpu.allowed_error(precision.rounded, one.shape[0], precision.summed) if precision.rounded else 0.0
    if precision.rounded != "fp64":
        return torch_gpu.verdict(found[::step], exactly(torch, one[::step]) @ exactly(torch, other), allowed)
    rows, columns, square = one[::step].tolist(), other[:, ::step].t().tolist(), found[::step, ::step].cpu()
    pairs = [(number, (7 * number + 3) % len(rows)) for number in range(len(rows))]
    exact = [exact_sum(rows[row], columns[column]) for row, column in pairs]
    picked = torch.stack([square[pair] for pair in pairs])
    return torch_gpu.verdict(picked, torch.tensor(exact, dtype=torch.float64), allowed)


def exactly(torch: Any, matrix: Any) -> Any:
    """Converts to fp64."""
    return low_precision.exactly(torch, matrix) if matrix.element_size() == 1 else matrix.double()


def exact_sum(row: List[float], column: List[float]) -> float:
    return math.fsum(x * y for x, y in zip(row, column))


WORKLOAD = Workload(run, runtime="torch", typical_seconds=4)
