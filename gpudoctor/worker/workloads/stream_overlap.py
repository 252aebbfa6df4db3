"""Work on two streams at once: a copy overlapped with a computation, and small kernels in parallel."""

from __future__ import annotations

import ctypes
import functools
import statistics
from typing import Any, Callable, Dict, List, Tuple

from gpudoctor.worker.measuring import clock
from gpudoctor.worker.measuring.bench import Bench, Workload
from gpudoctor.worker.measuring.driver import Driver, Module
from gpudoctor.worker.workloads.host_transfers import FIRST, OLD, Ends

BYTES = 8 << 20  # of one copy; together the copies take as long as the computation
MILLISECONDS = 10  # of the computation
REPEATS = 3
KERNELS, KERNEL_MILLISECONDS = 8, 2
MOST_PIECES = 16  # of the copies, in a timeline
WARP = 32


def run(bench: Bench) -> None:
    """Each direction: {"hidden": fraction of the shorter one that overlaps, "copy_milliseconds", "compute_milliseconds",
    "both_milliseconds", "timeline", "wrong_words"}; "concurrent kernels": {"kernels", "one_milliseconds", "all_milliseconds"}."""
    bench.near()
    bench.step("context")
    driver = Driver(bench.gpu)
    bench.step("compiling PTX")
    module = driver.module()
    bench.keep("engines", copy=driver.attribute("async_engines"), concurrent_kernels=driver.attribute("concurrent_kernels"))
    with driver.pinned(BYTES) as host, driver.buffer(BYTES) as gpu:
        ends = Ends(driver, module, host, gpu, BYTES)
        ends.fill(FIRST)
        with bench.section("from GPU") as values:
            values.update(overlap(driver, module, ends.from_gpu))
        ends.fill(OLD)
        with bench.section("to GPU") as values:
            values.update(overlap(driver, module, ends.to_gpu))
            values["wrong_words"] = ends.wrong_words(FIRST)
    if driver.attribute("concurrent_kernels"):
        with bench.section("concurrent kernels") as values:
            values.update(side_by_side(driver, module))


def overlap(driver: Driver, module: Module, copy: Callable[[Any], None]) -> Dict[str, Any]:
    copies, computing = driver.stream(), driver.stream()
    count = max(1, round(MILLISECONDS / statistics.median(driver.milliseconds(lambda: copy(copies), 3, 1, copies))))
    blocks, cycles = driver.attribute("multiprocessors"), cycles_of(driver, MILLISECONDS)

    def copy_all() -> None:
        for _ in range(count):
            copy(copies)

    def compute() -> None:
        spin(module, cycles, blocks, computing)

    copy_time = duration(driver, copy_all)
    compute_time = duration(driver, compute)
    both = duration(driver, compute, copy_all)  # the kernel first: a blocking launch would otherwise look like overlap
    hidden = (copy_time + compute_time - both) / min(copy_time, compute_time)
    times = {"copy_milliseconds": copy_time, "compute_milliseconds": compute_time, "both_milliseconds": both}
    lanes = {"compute": (computing, [compute]), "copy": (copies, in_pieces(lambda: copy(copies), count))}
    return {"hidden": hidden, **times, "timeline": timeline(driver, lanes)}


def in_pieces(work: Callable[[], None], count: int) -> List[Callable[[], None]]:
    """`count` times the same work in a few pieces of about equal duration."""

    def piece(number: int) -> None:
        for _ in range(number):
            work()

    ends = [count * number // MOST_PIECES for number in range(MOST_PIECES + 1)]
    return [functools.partial(piece, end - start) for start, end in zip(ends, ends[1:]) if end > start]


def timeline(driver: Driver, lanes: Dict[str, Tuple[Any, List[Callable[[], None]]]]) -> Dict[str, List[List[float]]]:
    """When each piece of work ran, in milliseconds: name -> [[began, ended], ...]. lanes: stream and works."""
    marks = {name: marked(driver, stream, works) for name, (stream, works) in lanes.items()}
    driver.synchronize()
    first = next(iter(marks.values()))[0]
    times = {name: [driver.elapsed(first, mark) for mark in found] for name, found in marks.items()}
    for mark in [mark for found in marks.values() for mark in found]:
        driver("cuEventDestroy_v2", mark)
    began = min(min(found) for found in times.values())
    since = {name: [round(at - began, 3) for at in found] for name, found in times.items()}
    return {name: [list(piece) for piece in zip(found, found[1:])] for name, found in since.items()}


def marked(driver: Driver, stream: Any, works: List[Callable[[], None]]) -> List[Any]:
    """An event before the first of these works, and one after each."""
    marks = [driver.event() for _ in range(len(works) + 1)]
    driver("cuEventRecord", marks[0], stream)
    for work, mark in zip(works, marks[1:]):
        work()
        driver("cuEventRecord", mark, stream)
    return marks


def side_by_side(driver: Driver, module: Module) -> Dict[str, Any]:
    streams = [driver.stream() for _ in range(KERNELS)]
    cycles = cycles_of(driver, KERNEL_MILLISECONDS)
    works = [lambda stream=stream: spin(module, cycles, 1, stream) for stream in streams]
    return {
        "kernels": KERNELS,
        "one_milliseconds": duration(driver, works[0]),
        "all_milliseconds": duration(driver, *works),
    }


def cycles_of(driver: Driver, milliseconds: int) -> ctypes.c_longlong:
    """At the GPU's highest clock, which the driver takes half a millisecond to report."""
    return ctypes.c_longlong(driver.attribute("clock_khz") * milliseconds)


def spin(module: Module, cycles: ctypes.c_longlong, blocks: int, stream: Any) -> None:
    """Keeps this many multiprocessors busy for a while."""
    module("spin", cycles, stream=stream, grid=blocks, threads=WARP)


def duration(driver: Driver, *works: Callable[[], None]) -> float:
    """Milliseconds from the first call until all work is done: the median, without the first run."""
    times: List[float] = []
    for _ in range(REPEATS + 1):
        began = clock.now()
        for work in works:
            work()
        driver.synchronize()
        times.append((clock.now() - began) * 1e3)
    return statistics.median(times[1:])


WORKLOAD = Workload(run, typical_seconds=0.7)
