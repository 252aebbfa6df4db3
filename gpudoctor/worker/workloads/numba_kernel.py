"""Numba: saxpy, compiled from Python by numba.cuda.jit. Also runs on Numba's simulator, with far fewer elements."""

from __future__ import annotations

from typing import Any, List

from gpudoctor.worker.measuring import clock
from gpudoctor.worker.measuring.bench import Bench, Workload, summary

ELEMENTS, SIMULATED_ELEMENTS = 1 << 26, 256
SHARE_OF_FREE = 16
THREADS, SIMULATED_THREADS = 256, 16
BLOCKS_PER_MULTIPROCESSOR = 32
REPEATS, LAUNCHES = 5, 10
A = 2

cuda: Any = None  # numba.cuda: the simulator looks for it in the kernel's globals


def run(bench: Bench) -> None:
    """Stores "saxpy": {"gb_per_s", "spread", "milliseconds", "cold_seconds" (compiled and run), "wrong_elements"}."""
    global cuda
    import numba
    import numba.cuda
    import numpy

    cuda = numba.cuda
    simulated = bool(numba.config.ENABLE_CUDASIM)
    bench.step("context")
    cuda.select_device(bench.gpu)
    target = "simulator" if simulated else getattr(cuda, "implementation", "")
    bench.keep("numba", version=numba.__version__, target=target)
    elements = (
        SIMULATED_ELEMENTS if simulated else min(ELEMENTS, int(cuda.current_context().get_memory_info()[0]) // SHARE_OF_FREE)
    )
    blocks = 1 if simulated else BLOCKS_PER_MULTIPROCESSOR * cuda.get_current_device().MULTIPROCESSOR_COUNT
    numbers = (numpy.arange(elements, dtype=numpy.uint32) % 1024).astype(numpy.float32)
    bench.step("copying to the GPU")
    x, y = cuda.to_device(numbers), cuda.to_device(numpy.zeros(elements, numpy.float32))
    kernel = cuda.jit(saxpy)[blocks, SIMULATED_THREADS if simulated else THREADS]

    def work() -> None:
        kernel(y, x, numpy.float32(A))

    with bench.section("saxpy") as values:
        cold, seconds = timed(work)
        wrong = int((y.copy_to_host() != A * (1 + LAUNCHES * (REPEATS + 1)) * numbers).sum())
        found = summary(seconds)
        values.update(gb_per_s=12 * elements / found["median"] / 1e9, spread=found["spread"], milliseconds=found["median"] * 1e3)
        values.update(cold_seconds=round(cold, 4), elements=elements, wrong_elements=wrong)


def saxpy(y: Any, x: Any, a: Any) -> None:
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[i] = a * x[i] + y[i]


def timed(work: Any) -> Any:
    """Seconds of the first call, and of one of many calls, several times."""
    start = clock.now()
    work()
    cuda.synchronize()
    cold = clock.now() - start
    seconds: List[float] = []
    for _ in range(REPEATS + 1):
        start = clock.now()
        for _ in range(LAUNCHES):
            work()
        cuda.synchronize()
        seconds.append((clock.now() - start) / LAUNCHES)
    return cold, seconds[1:]


WORKLOAD = Workload(run, runtime="numba", typical_seconds=2)
