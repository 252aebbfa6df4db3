"""Transfers between page-locked host memory and all GPUs at once: GPUs that share a path each get a part of its bandwidth.

One process does it, so that all GPUs really work at the same time.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Dict, List, Set

from gpudoctor.worker.measuring.bench import TOGETHER, Bench, Workload
from gpudoctor.worker.measuring.driver import Driver
from gpudoctor.worker.reply import Skip
from gpudoctor.worker.workloads.host_transfers import FIRST, OLD, SHARE_OF_FREE, Ends, available

BYTES = 64 << 20  # for each GPU
MILLISECONDS = 120  # for each direction
Work = Callable[[Ends], None]


def run(bench: Bench) -> None:
    """{"gb_per_s": of all together, "each": CUDA's number of a GPU -> GB/s, "wrong_words": CUDA's number of a GPU -> count}."""
    if len(bench.gpus) < 2:
        raise Skip("there is only one GPU, so it shares its path with no other")
    allowed = os.sched_getaffinity(0)
    size = min(BYTES, available() // SHARE_OF_FREE // len(bench.gpus)) >> 20 << 20
    with contextlib.ExitStack() as stack:
        all_ends = {}
        for gpu in bench.gpus:
            bench.step("context of GPU %d" % gpu)
            driver = Driver(gpu)
            os.sched_setaffinity(0, allowed & cores_near(driver.bus_id()) or allowed)
            ends = Ends(driver, driver.module(), stack.enter_context(driver.pinned(size)), driver.allocate(size), size)
            ends.fill(FIRST + gpu)
            all_ends[gpu] = ends
        with bench.section("pinned from GPU") as values:
            values.update(measure(all_ends, lambda ends: ends.from_gpu()))
        for ends in all_ends.values():
            ends.driver.use()
            ends.fill(OLD << 32)
        with bench.section("pinned to GPU") as values:
            values.update(measure(all_ends, lambda ends: ends.to_gpu()))
            values["wrong_words"] = {str(gpu): wrong(ends, FIRST + gpu) for gpu, ends in all_ends.items()}


def cores_near(bus_id: str) -> Set[int]:
    """The CPU cores near a PCI device; empty if /sys does not show them."""
    try:
        with open("/sys/bus/pci/devices/%s/local_cpulist" % bus_id, encoding="ascii") as file:
            ranges = [part.split("-") for part in file.read().strip().split(",") if part]
    except OSError:
        return set()
    return {core for ends in ranges for core in range(int(ends[0]), int(ends[-1]) + 1)}


def wrong(ends: Ends, seed: int) -> int:
    ends.driver.use()
    return ends.wrong_words(seed)


def measure(all_ends: Dict[int, Ends], work: Work) -> Dict[str, Any]:
    """GB/s of each GPU while all copy the same amount, and of all until the last one is done."""
    slowest = max(rounds(all_ends, work, 3).values()) / 3
    count = max(3, min(200, int(MILLISECONDS / slowest)))
    times = rounds(all_ends, work, count)
    size = next(iter(all_ends.values())).size * count
    each = {str(gpu): size / milliseconds / 1e6 for gpu, milliseconds in times.items()}
    return {"gb_per_s": size * len(times) / max(times.values()) / 1e6, "each": each}


def rounds(all_ends: Dict[int, Ends], work: Work, count: int) -> Dict[int, float]:
    """Milliseconds that each GPU took for this many copies."""
    marks: Dict[int, List[Any]] = {}
    for gpu, ends in all_ends.items():
        ends.driver.use()
        marks[gpu] = [ends.driver.event(), ends.driver.event()]
        ends.driver("cuEventRecord", marks[gpu][0], None)
    for _ in range(count):
        for ends in all_ends.values():
            ends.driver.use()
            work(ends)
    times = {}
    for gpu, ends in all_ends.items():
        ends.driver.use()
        ends.driver("cuEventRecord", marks[gpu][1], None)
    for gpu, ends in all_ends.items():
        ends.driver.use()
        ends.driver.synchronize()
        times[gpu] = ends.driver.elapsed(*marks[gpu])
    return times


WORKLOAD = Workload(run, scope=TOGETHER, seconds=90, typical_seconds=2)
