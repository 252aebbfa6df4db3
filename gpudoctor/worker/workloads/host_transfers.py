"""Transfers between host memory and one GPU: page-locked in each and both directions, pageable, and small ones.

Every byte that was copied to the GPU and back is verified.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

from gpudoctor.worker.measuring import clock
from gpudoctor.worker.measuring.bench import ALONE, Bench, Workload, summary
from gpudoctor.worker.measuring.driver import Driver, Module, Pointer, fill, wrong_words

BYTES = 256 << 20  # page-locked; locking more takes too long
PAGEABLE_BYTES = 64 << 20
SHARE_OF_FREE = 8  # of the GPU's and the host's free memory
MILLISECONDS = 40  # for each direction
SMALL = {"4 B": 4, "4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20}
SMALL_REPEATS = 40
FIRST, SECOND, OLD = 1, 2, 3  # seeds of patterns


class Ends(NamedTuple):
    """Memory of `size` bytes on the host and on the GPU, and the functions that copy between them."""

    driver: Driver
    module: Module
    host: ctypes.c_void_p
    gpu: Pointer
    size: int

    def half(self, number: int) -> Ends:
        half = self.size // 2
        host = ctypes.c_void_p((self.host.value or 0) + number * half)
        return self._replace(host=host, gpu=Pointer(self.gpu.value + number * half), size=half)

    def to_gpu(self, stream: Any = None) -> None:
        self.driver("cuMemcpyHtoDAsync_v2", self.gpu, self.host, ctypes.c_size_t(self.size), stream)

    def from_gpu(self, stream: Any = None) -> None:
        self.driver("cuMemcpyDtoHAsync_v2", self.host, self.gpu, ctypes.c_size_t(self.size), stream)

    def fill(self, seed: int) -> None:
        """Writes a pattern on the GPU."""
        fill(self.module, self.gpu, self.size, seed)
        self.driver.synchronize()

    def wrong_words(self, seed: int) -> int:
        """How many 8-byte words on the GPU differ from the pattern."""
        return wrong_words(self.driver, self.module, self.gpu, self.size, seed)


def run(bench: Bench) -> None:
    """For each large transfer {"gb_per_s", "spread"}, with "wrong_words" once the data is back on the GPU; for small ones the
    {"microseconds"} until one has arrived."""
    near = bench.near()
    bench.step("context")
    driver = Driver(bench.gpu)
    bench.step("compiling PTX")
    module = driver.module()
    size = min(BYTES, driver.memory()[0] // SHARE_OF_FREE, available() // SHARE_OF_FREE) >> 20 << 20
    bench.keep("memory", bytes=size, near_gpu=near)
    bench.step("page-locked memory")
    with driver.pinned(size) as host, driver.buffer(size) as gpu:
        ends = Ends(driver, module, host, gpu, size)
        one_way(bench, ends, "pinned", lambda work: driver.fitting(work, MILLISECONDS))
        with bench.section("pinned both ways") as values:
            values.update(both_ways(ends))
        bench.step("small copies")
        for name, small in SMALL.items():
            few = ends._replace(size=small)
            bench.keep(name + " to GPU", **latency(few, few.to_gpu))
            bench.keep(name + " from GPU", **latency(few, few.from_gpu))
    bench.step("pageable memory")
    pageable(bench, driver, module, min(PAGEABLE_BYTES, size))


def available() -> int:
    """Bytes of host memory that are available to programs."""
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = dict(line.split(":") for line in file)
    return int(fields["MemAvailable"].split()[0]) << 10


def one_way(bench: Bench, ends: Ends, kind: str, timed: Callable[[Callable[[], None]], List[float]]) -> None:
    """Copies a pattern from the GPU, then back to it."""
    ends.fill(FIRST)
    with bench.section(kind + " from GPU") as values:
        values.update(speed(ends, timed(ends.from_gpu)))
    ends.fill(OLD)
    with bench.section(kind + " to GPU") as values:
        values.update(speed(ends, timed(ends.to_gpu)))
        values["wrong_words"] = ends.wrong_words(FIRST)


def speed(ends: Ends, times: Sequence[float]) -> Dict[str, float]:
    found = summary([ends.size / milliseconds / 1e6 for milliseconds in times])
    return {"gb_per_s": found["median"], "spread": found["spread"]}


def both_ways(ends: Ends) -> Dict[str, Any]:
    """GB/s of each direction when both run: the host's first half to the GPU, the GPU's second half to the host."""
    driver, there, back = ends.driver, ends.half(0), ends.half(1)
    there.fill(OLD)
    back.fill(SECOND)
    first = driver.milliseconds(there.to_gpu, 1, 0)[0]
    there.fill(OLD)
    times = at_once(driver, there.to_gpu, back.from_gpu, max(3, min(10, int(MILLISECONDS / first))))
    together = min(each[-1] for each in times)
    to_gpu, from_gpu = (moved(each, together) * there.size / together / 1e6 for each in times)
    wrong = there.wrong_words(FIRST)
    there._replace(host=back.host).to_gpu()
    wrong += there.wrong_words(SECOND)
    both = {"to_gpu_gb_per_s": to_gpu, "from_gpu_gb_per_s": from_gpu}
    return {"gb_per_s": to_gpu + from_gpu, **both, "wrong_words": wrong}


def at_once(driver: Driver, one: Callable[[Any], None], other: Callable[[Any], None], repeats: int) -> List[List[float]]:
    """For two kinds of work on two streams: when each repeat had ended, in milliseconds after the common start."""
    start = driver.event()
    sides: List[Tuple[Callable[[Any], None], Any, List[Any]]] = [(work, driver.stream(), []) for work in (one, other)]
    driver("cuEventRecord", start, sides[0][1])
    driver("cuStreamWaitEvent", sides[1][1], start, 0)
    for _ in range(repeats):
        for work, stream, marks in sides:
            work(stream)
            marks.append(driver.event())
            driver("cuEventRecord", marks[-1], stream)
    driver.synchronize()
    return [[driver.elapsed(start, mark) for mark in marks] for _, _, marks in sides]


def moved(ended: Sequence[float], until: float) -> float:
    """How many copies were done by then, including a fraction of the last one."""
    done = [end for end in ended if end <= until]
    if len(done) == len(ended):
        return float(len(ended))
    before = done[-1] if done else 0.0
    return len(done) + (until - before) / (ended[len(done)] - before)


def latency(ends: Ends, work: Callable[[Any], None]) -> Dict[str, float]:
    stream = ends.driver.stream()
    times = []
    for _ in range(SMALL_REPEATS):
        began = clock.now()
        work(stream)
        ends.driver.wait(stream)
        times.append((clock.now() - began) * 1e6)
    found = summary(times)
    return {"microseconds": found["median"], "spread": found["spread"]}


def pageable(bench: Bench, driver: Driver, module: Module, size: int) -> None:
    """Ordinary memory: the driver copies it in pieces through its own page-locked memory, so the host's clock is used."""
    with driver.buffer(size) as gpu:
        memory = (ctypes.c_char * size).from_buffer(mmap.mmap(-1, size))
        ends = Ends(driver, module, ctypes.c_void_p(ctypes.addressof(memory)), gpu, size)
        one_way(bench, ends, "pageable", lambda work: host_milliseconds(driver, work))


def host_milliseconds(driver: Driver, work: Callable[[], None]) -> List[float]:
    """The first call is not counted, because it touches the memory."""
    times: List[float] = []
    while len(times) < 4 or (sum(times) < MILLISECONDS and len(times) < 10):
        began = clock.now()
        work()
        driver.synchronize()
        times.append((clock.now() - began) * 1e3)
    return times[1:]


WORKLOAD = Workload(run, scope=ALONE, typical_seconds=0.7)
