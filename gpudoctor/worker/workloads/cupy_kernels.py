"""CuPy: a matrix product (cuBLAS), a raw kernel and an expression (both NVRTC), a Fourier transform (cuFFT)."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict

from gpudoctor.worker.measuring import clock, matrices, settings
from gpudoctor.worker.measuring.bench import Bench, Workload, finite, summary

REPEATS, WARM_UP = 10, 2
SIDE, SMALL_SIDE = 4096, 1024
ROOMY = 1 << 30  # bytes of free memory needed for the larger matrices
ELEMENTS = 1 << 25  # of each vector, if it fits
SHARE_OF_FREE = 16
POINTS = 1 << 20
THREADS = 256
SAXPY = r"""
extern "C" __global__ void saxpy(float *y, const float *x, float a, unsigned long long elements)
{
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += stride)
        y[i] = a * x[i] + y[i];
}
"""


def run(bench: Bench) -> None:
    """See the functions below; "cold_seconds" is the first call, including loading and compiling."""
    settings.as_user(bench._file, "CUPY_CACHE_DIR")  # an empty folder forces compiling
    import cupy

    bench.step("context")
    cupy.cuda.Device(bench.gpu).use()
    free, _ = cupy.cuda.runtime.memGetInfo()
    bench.keep("cupy", version=cupy.__version__, cuda_runtime=cupy.cuda.runtime.runtimeGetVersion())
    for name, measure in MEASURES.items():
        with bench.section(name) as values:
            values.update(measure(cupy, free))
        cupy.get_default_memory_pool().free_all_blocks()


def dot(cupy: Any, free: int) -> Dict[str, Any]:
    """{"tflops", "spread", "cold_seconds", "wrong_rows"} of a product in fp32."""
    side = SIDE if free > ROOMY else SMALL_SIDE
    one, other = matrices.whole_numbers(side)
    left, right, product = cupy.asarray(one), cupy.asarray(other), cupy.empty((side, side), cupy.float32)
    speed = timed(cupy, lambda: cupy.dot(left, right, out=product), 2 * side**3 / 1e12)
    wrong = matrices.wrong_rows(one, other, cupy.asnumpy(product))
    return {"side": side, "tflops": speed.pop("rate"), **speed, "wrong_rows": wrong}


def raw_kernel(cupy: Any, free: int) -> Dict[str, Any]:
    """{"gb_per_s", "spread", "cold_seconds", "wrong_elements"}: y = 2 x + y, repeatedly, on whole numbers."""
    import numpy

    elements = min(ELEMENTS, free // SHARE_OF_FREE)
    numbers = numpy.resize(numpy.arange(1024, dtype=numpy.float32), elements)
    x, y = cupy.asarray(numbers), cupy.asarray(numpy.zeros(elements, numpy.float32))
    kernel = cupy.RawKernel(SAXPY, "saxpy")
    blocks = 32 * int(cupy.cuda.Device().attributes["MultiProcessorCount"])
    rounds = [0]

    def work() -> None:
        rounds[0] += 1
        kernel((blocks,), (THREADS,), (y, x, numpy.float32(2), numpy.uint64(elements)))

    speed = timed(cupy, work, 12 * elements / 1e9)
    wrong = int(numpy.count_nonzero(cupy.asnumpy(y) != numpy.resize(2 * rounds[0] * numbers[:1024], elements)))
    return {"gb_per_s": speed.pop("rate"), **speed, "wrong_elements": wrong}


def expression(cupy: Any, free: int) -> Dict[str, Any]:
    """{"cold_seconds", "milliseconds", "wrong_elements"}: x * x + 1, which CuPy compiles with CUDA's headers."""
    import numpy

    numbers = (numpy.arange(POINTS) % 1024).astype(numpy.float32)
    x, found = cupy.asarray(numbers), []
    speed = timed(cupy, lambda: found.append(x * x + 1), 1)
    wrong = int((cupy.asnumpy(found[-1]) != numbers * numbers + 1).sum())
    return {"cold_seconds": speed["cold_seconds"], "milliseconds": speed["milliseconds"], "wrong_elements": wrong}


def fft(cupy: Any, free: int) -> Dict[str, Any]:
    """{"milliseconds", "gflops", "spread", "cold_seconds", "error", "round_trip_error"}, in single precision.

    The errors are relative: the transform's compared with NumPy's in double precision, and the round trip's with the input.
    """
    import numpy

    numbers = numpy.random.default_rng(0)
    signal = (numbers.standard_normal(POINTS) + 1j * numbers.standard_normal(POINTS)).astype(numpy.complex64)
    x, found = cupy.asarray(signal), []
    speed = timed(cupy, lambda: found.append(cupy.fft.fft(x)), 5 * POINTS * math.log2(POINTS) / 1e9)
    error = relative(cupy.asnumpy(found[-1]), numpy.fft.fft(signal.astype(numpy.complex128)))
    round_trip = relative(cupy.asnumpy(cupy.fft.ifft(found[-1])), signal)
    return {"gflops": speed.pop("rate"), **speed, "error": error, "round_trip_error": round_trip}


def relative(found: Any, expected: Any) -> Any:
    """The relative distance from the expected value; None if it is not finite."""
    import numpy

    error = float(numpy.linalg.norm(found - expected) / numpy.linalg.norm(expected))
    return finite(error)


def timed(cupy: Any, work: Callable[[], Any], amount: float) -> Dict[str, Any]:
    """{"rate": amount per second, "spread", "milliseconds", "cold_seconds"}."""
    start = clock.now()
    work()
    cupy.cuda.Device().synchronize()
    cold = clock.now() - start
    for _ in range(WARM_UP):
        work()
    marks = [cupy.cuda.Event() for _ in range(REPEATS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    marks[-1].synchronize()
    times = [cupy.cuda.get_elapsed_time(marks[number], marks[number + 1]) for number in range(REPEATS)]
    found = summary(times)
    return {
        "rate": amount / found["median"] * 1e3,
        "spread": found["spread"],
        "milliseconds": found["median"],
        "cold_seconds": round(cold, 4),
    }


MEASURES: Dict[str, Callable[[Any, int], Dict[str, Any]]] = {
    "dot": dot,
    "raw_kernel": raw_kernel,
    "expression": expression,
    "fft": fft,
}
WORKLOAD = Workload(run, runtime="cupy", typical_seconds=3)
