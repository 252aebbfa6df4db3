"""GPU memory: saxpy, triad, read, write and two kinds of copy, over buffers far larger than the L2 cache, all verified."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, NamedTuple

from gpudoctor.worker.measuring.bench import Bench, Workload, summary
from gpudoctor.worker.measuring.driver import THREADS, Driver, Module, Pointer, covering, errors_found

BYTES = 1 << 30  # of each of the three buffers, if they fit
SHARE_OF_FREE = 5  # no buffer uses more than a fifth of the free memory
REPEATS = 15
FLOAT, VECTOR = 4, 16
A = 2.0


class Buffers(NamedTuple):
    """Three buffers of `size` bytes: x and y hold the ramp 0 … 1023, `to` receives results."""

    x: Pointer
    y: Pointer
    to: Pointer
    size: int

    @property
    def vectors(self) -> ctypes.c_uint64:
        return ctypes.c_uint64(self.size // VECTOR)

    @property
    def grid(self) -> int:
        return covering(self.size // VECTOR)

    @property
    def floats(self) -> ctypes.c_uint64:
        return ctypes.c_uint64(self.size // FLOAT)


def run(bench: Bench) -> None:
    """For each kernel: {"gb_per_s", "spread", "wrong_elements"}."""
    bench.step("context")
    driver = Driver(bench.gpu)
    bench.step("compiling PTX")
    module = driver.module()
    free, _ = driver.memory()
    size = min(BYTES, free // SHARE_OF_FREE) // VECTOR * VECTOR
    with driver.buffer(size) as x, driver.buffer(size) as y, driver.buffer(size) as to:
        buffers = Buffers(x, y, to, size)
        for pointer in (x, y):
            module("ramp", pointer, buffers.floats)
        for name, measure in KERNELS.items():
            with bench.section(name) as values:
                values.update(measure(driver, module, buffers))
    bench.keep("buffer", bytes=size, l2_bytes=driver.attribute("l2_bytes"))


def saxpy(driver: Driver, module: Module, buffers: Buffers) -> Dict[str, Any]:
    """y = 2 x + y, repeatedly, on whole numbers, so that the sum of all rounds is exact."""
    rounds = [0]

    def work() -> None:
        rounds[0] += 1
        module("saxpy", buffers.y, buffers.x, buffers.vectors, ctypes.c_float(A), grid=buffers.grid)

    speed = timed(driver, work, 3 * buffers.size)
    factor = ctypes.c_float(A * rounds[0] + 1)
    return dict(speed, wrong_elements=wrong(driver, module, buffers.y, buffers, factor))


def triad(driver: Driver, module: Module, buffers: Buffers) -> Dict[str, Any]:
    """to = x + 2 y, from two buffers: repeated reads come from the cache."""
    module("ramp", buffers.y, buffers.floats)

    def work() -> None:
        module("triad", buffers.to, buffers.x, buffers.y, buffers.vectors, ctypes.c_float(A), grid=buffers.grid)

    speed = timed(driver, work, 3 * buffers.size)
    return dict(speed, wrong_elements=wrong(driver, module, buffers.to, buffers, ctypes.c_float(A + 1)))


def copy(driver: Driver, module: Module, buffers: Buffers) -> Dict[str, Any]:
    speed = timed(driver, lambda: module("copy", buffers.to, buffers.x, buffers.vectors, grid=buffers.grid), 2 * buffers.size)
    return dict(speed, wrong_elements=wrong(driver, module, buffers.to, buffers, ctypes.c_float(1)))


def memcpy(driver: Driver, module: Module, buffers: Buffers) -> Dict[str, Any]:
    """The driver's copy function."""
    size = ctypes.c_size_t(buffers.size)
    module("write", buffers.to, buffers.vectors, ctypes.c_float(7))
    speed = timed(driver, lambda: driver("cuMemcpyDtoDAsync_v2", buffers.to, buffers.x, size, None), 2 * buffers.size)
    return dict(speed, wrong_elements=wrong(driver, module, buffers.to, buffers, ctypes.c_float(1)))


def write(driver: Driver, module: Module, buffers: Buffers) -> Dict[str, Any]:
    value = ctypes.c_float(7)
    speed = timed(driver, lambda: module("write", buffers.to, buffers.vectors, value, grid=buffers.grid), buffers.size)
    return dict(speed, wrong_elements=wrong(driver, module, buffers.to, buffers, ctypes.c_float(0), value))


def read(driver: Driver, module: Module, buffers: Buffers) -> Dict[str, Any]:
    """Each thread's sum is exact, and all sums together have to equal the ramp's."""
    threads = module.grid * THREADS
    with driver.buffer(threads * FLOAT) as sums:
        speed = timed(driver, lambda: module("read", buffers.x, sums, buffers.vectors), buffers.size)
        found = sum(memoryview(driver.bytes_from(sums, threads * FLOAT)).cast("f"))
    floats = buffers.size // FLOAT
    expected = floats // 1024 * (1023 * 512) + sum(range(floats % 1024))
    return dict(speed, wrong_elements=int(found != expected))


def timed(driver: Driver, work: Callable[[], None], size: int) -> Dict[str, float]:
    speeds = [size / milliseconds / 1e6 for milliseconds in driver.milliseconds(work, REPEATS)]
    found = summary(speeds)
    return {"gb_per_s": found["median"], "spread": found["spread"]}


def wrong(driver: Driver, module: Module, pointer: Pointer, buffers: Buffers, factor: Any, offset: Any = None) -> int:
    """How many elements are not `factor` times the ramp plus `offset`."""
    return errors_found(driver, module, "expect_ramp", pointer, buffers.floats, factor, offset or ctypes.c_float(0))[0]


KERNELS: Dict[str, Callable[[Driver, Module, Buffers], Dict[str, Any]]] = {
    "saxpy": saxpy,
    "triad": triad,
    "copy": copy,
    "memcpy": memcpy,
    "write": write,
    "read": read,
}
WORKLOAD = Workload(run, seconds=20, typical_seconds=0.8)
