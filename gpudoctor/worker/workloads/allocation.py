"""The cost of allocating and freeing GPU memory: with cuMemAlloc, and from a stream-ordered pool.

The pool is created here and keeps freed memory, like the pools of frameworks.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Callable, Dict, Iterator, List, Tuple

from gpudoctor.worker.measuring import clock
from gpudoctor.worker.measuring.bench import Bench, Workload, summary
from gpudoctor.worker.measuring.driver import Driver, Pointer
from gpudoctor.worker.reply import Skip

SIZES = {"1 MiB": 1 << 20, "64 MiB": 64 << 20}
REPEATS = 20
TAIL = 4096  # bytes at the end of the memory that are read back
VALUE = 0x600DCAFE
RELEASE_THRESHOLD = 4
Get = Callable[[int], Pointer]
Give = Callable[[Pointer], None]


class PoolProperties(ctypes.Structure):
    """CUmemPoolProps: memory of one GPU, for this process only."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location_type", ctypes.c_int),
        ("location", ctypes.c_int),
        ("security", ctypes.c_void_p),
        ("reserved", ctypes.c_ubyte * 64),
    )


PINNED, DEVICE = 1, 1  # memory that does not move, on a device


def run(bench: Bench) -> None:
    """cuMemAlloc and pool, for each size: {"microseconds" to allocate and free, "spread", "wrong_bytes"}; pool: {"skipped": why}
    without pool support."""
    bench.near()
    bench.step("context")
    driver = Driver(bench.gpu)
    for name, size in SIZES.items():
        with bench.section("cuMemAlloc " + name) as values:
            values.update(measured(driver, driver.allocate, driver.free, size))
    try:
        bench.step("memory pool")
        with pool(driver) as own:
            get, give = from_pool(driver, own, driver.stream())
            for name, size in SIZES.items():
                with bench.section("pool " + name) as values:
                    values.update(measured(driver, get, give, size))
    except Skip as skip:
        bench.keep("pool", skipped=skip.reason)


def measured(driver: Driver, get: Get, give: Give, size: int) -> Dict[str, float]:
    wrong = wrong_bytes(driver, get, give, size)
    times: List[float] = []
    for _ in range(REPEATS):
        began = clock.now()
        give(get(size))
        times.append((clock.now() - began) * 1e6)
    driver.synchronize()
    found = summary(times)
    return {"microseconds": found["median"], "spread": found["spread"], "wrong_bytes": wrong}


def wrong_bytes(driver: Driver, get: Get, give: Give, size: int) -> int:
    """Writes the whole allocation and reads its end: how many bytes are not what was written."""
    pointer = get(size)
    driver.synchronize()
    driver("cuMemsetD32_v2", pointer, ctypes.c_uint(VALUE), ctypes.c_size_t(size // 4))
    found = driver.bytes_from(pointer, TAIL, size - TAIL)
    give(pointer)
    driver.synchronize()
    expected = VALUE.to_bytes(4, "little") * (TAIL // 4)
    return sum(found[index] != expected[index] for index in range(TAIL))


@contextlib.contextmanager
def pool(driver: Driver) -> Iterator[ctypes.c_void_p]:
    if not hasattr(driver.library, "cuMemAllocFromPoolAsync") or not driver.attribute("memory_pools"):
        raise Skip("this GPU or driver has no stream-ordered memory pools", Skip.UNSUPPORTED)
    own, keeps_all = ctypes.c_void_p(), ctypes.c_uint64(2**64 - 1)
    properties = PoolProperties(type=PINNED, location_type=DEVICE, location=driver.device.value)
    driver("cuMemPoolCreate", ctypes.byref(own), ctypes.byref(properties))
    driver("cuMemPoolSetAttribute", own, RELEASE_THRESHOLD, ctypes.byref(keeps_all))
    yield own
    driver("cuMemPoolDestroy", own)


def from_pool(driver: Driver, own: Any, stream: Any) -> Tuple[Get, Give]:
    def get(size: int) -> Pointer:
        pointer = Pointer()
        driver("cuMemAllocFromPoolAsync", ctypes.byref(pointer), ctypes.c_size_t(size), own, stream)
        return pointer

    def give(pointer: Pointer) -> None:
        driver("cuMemFreeAsync", pointer, stream)

    return get, give


WORKLOAD = Workload(run, typical_seconds=0.4)
