"""The cost of launching a kernel that does nothing: one by one, back to back, and as a CUDA graph.

The times include a microsecond or two of Python.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Dict, List, Sequence

from gpudoctor.worker.measuring import clock
from gpudoctor.worker.measuring.bench import Bench, Workload, summary
from gpudoctor.worker.measuring.driver import SUCCESS, CudaError, Driver, Module
from gpudoctor.worker.reply import Skip

SINGLE_REPEATS = 200
LAUNCHES = 1000  # back to back, and in a graph
ROUNDS = 5
WARM_UP_MILLISECONDS = 20  # time for the clocks to ramp up
CAPTURE_MODE_THREAD_LOCAL = 1
CAPTURE_ERRORS = range(900, 909)
Launch = Callable[[], int]


def run(bench: Bench) -> None:
    """{"microseconds", "spread"} of each launch; graph: {"skipped": why} if this driver does not support it."""
    bench.near()
    bench.step("context")
    driver = Driver(bench.gpu)
    bench.step("compiling PTX")
    module = driver.module()
    stream = driver.stream()
    launch = launcher(driver, module, stream)
    cycles = ctypes.c_longlong(driver.attribute("clock_khz") * WARM_UP_MILLISECONDS)
    module("spin", cycles, stream=stream, grid=driver.attribute("multiprocessors"))
    with bench.section("single") as values:
        values.update(in_words(each(driver, stream, lambda: launched([launch()]), SINGLE_REPEATS)))
    with bench.section("back to back") as values:
        values.update(in_words(each(driver, stream, lambda: launched([launch() for _ in range(LAUNCHES)]), ROUNDS), LAUNCHES))
    try:
        bench.step("capturing a graph")
        graph = captured(driver, stream, lambda: launched([launch() for _ in range(LAUNCHES)]))
        with bench.section("graph") as values:
            values.update(in_words(each(driver, stream, lambda: driver("cuGraphLaunch", graph, stream), ROUNDS), LAUNCHES))
    except Skip as skip:
        bench.keep("graph", skipped=skip.reason)
    except CudaError as error:
        if error.code not in CAPTURE_ERRORS or os.environ.get("CUDA_LAUNCH_BLOCKING", "0") == "0":
            raise
        bench.keep("graph", skipped="graph capture does not work with CUDA_LAUNCH_BLOCKING: %s" % error)


def launcher(driver: Driver, module: Module, stream: Any) -> Launch:
    """A launch with as little Python overhead as possible."""
    launch, function = driver.library.cuLaunchKernel, module.function("nothing")
    return lambda: int(launch(function, 1, 1, 1, 1, 1, 1, 0, stream, None, None))


def launched(codes: Sequence[int]) -> None:
    code = next((code for code in codes if code != SUCCESS), SUCCESS)
    if code != SUCCESS:
        raise CudaError("cuLaunchKernel", code, "of an empty kernel")


def each(driver: Driver, stream: Any, work: Callable[[], None], repeats: int) -> List[float]:
    """Microseconds of each repeat until the GPU is done; the first ones are not counted."""
    times = []
    for _ in range(repeats + 2):
        began = clock.now()
        work()
        driver.wait(stream)
        times.append((clock.now() - began) * 1e6)
    return times[2:]


def in_words(times: Sequence[float], launches: int = 1) -> Dict[str, float]:
    found = summary([microseconds / launches for microseconds in times])
    return {"microseconds": found["median"], "spread": found["spread"]}


def captured(driver: Driver, stream: Any, work: Callable[[], None]) -> ctypes.c_void_p:
    """The work that `work` puts on the stream, as a graph that can be launched."""
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    driver("cuStreamBeginCapture_v2", stream, CAPTURE_MODE_THREAD_LOCAL)
    work()
    driver("cuStreamEndCapture", stream, ctypes.byref(graph))
    if hasattr(driver.library, "cuGraphInstantiateWithFlags"):
        driver("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    else:  # before CUDA 11.4
        driver("cuGraphInstantiate_v2", ctypes.byref(executable), graph, None, None, ctypes.c_size_t(0))
    return executable


WORKLOAD = Workload(run, typical_seconds=0.5)
