"""Full load on a GPU for minutes, in stretches of a few seconds, each verified: `gpudoctor burn`."""

from __future__ import annotations

import itertools
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

from gpudoctor.worker.measuring import torch_gpu
from gpudoctor.worker.measuring.bench import Bench, Workload
from gpudoctor.worker.measuring.driver import Driver
from gpudoctor.worker.workloads.burning.copies import Copies
from gpudoctor.worker.workloads.burning.memory import Memory
from gpudoctor.worker.workloads.burning.products import BURST_MS, MOST_MS, Products
from gpudoctor.worker.workloads.gemm import PRECISIONS, lacking

SECONDS = 60.0  # if the user did not choose
STRETCHES = 24  # about as many in the whole time
LEAST_SECONDS, MOST_SECONDS = 2.0, 20.0  # of a stretch
HOTTEST = "bf16", "fp16", "fp32"  # the first that the GPU has draws the most power
LOADS = ("power", "memory", "pcie")

Stretch = Tuple[str, Callable[[float], Dict[str, Any]]]


def run(bench: Bench) -> None:
    """Stretches "power 0", "bursts 1", "memory 2" …: {"load", "wrong_words", and what the load counts}; complete: {"seconds"} at
    the very end. Each has "during" from the sampler."""
    import torch

    device = torch_gpu.gpu(bench)
    total = float(bench.options.get("seconds", SECONDS))
    end = time.monotonic() + total
    length = min(MOST_SECONDS, max(LEAST_SECONDS, total / STRETCHES))
    loads = Loads(bench, torch, device).stretches(bench.options.get("loads", LOADS))
    for number, (load, work) in enumerate(loads):
        left = end - time.monotonic()
        if left <= 0:
            break
        with bench.section("%s %d" % (load, number)) as values:
            values.update(work(min(length, left)), load=load)
    bench.keep("complete", seconds=total)


class Loads:
    """The loads of one GPU. Each is prepared when it is first used; only one precision is kept at a time."""

    def __init__(self, bench: Bench, torch: Any, device: Any) -> None:
        self.torch = torch
        self.device = device
        self.driver = Driver(bench.gpu)
        module = self.driver.module()
        self.memory = Memory(self.driver, module)
        self.copies = Copies(self.driver, module)
        usual = [name for name, precision in PRECISIONS.items() if not precision.is_extra]
        self.precisions = [name for name in usual if not lacking(torch, name)]
        self.hottest = next(name for name in HOTTEST if name in self.precisions)
        self.products = [Products(torch, self.hottest, device)]

    def stretches(self, wanted: List[str]) -> Iterator[Stretch]:
        """Without end: the loads by turns, and among those of power each precision and length of bursts by turns."""
        others = itertools.cycle([name for name in self.precisions if name != self.hottest] or [self.hottest])
        lengths = itertools.cycle(BURST_MS)
        while True:
            if "power" in wanted:
                yield "power", lambda seconds: self._of(self.hottest).sustained(seconds)
                yield "bursts", lambda seconds: self._of(self.hottest, BURST_MS[0]).bursts(seconds, next(lengths))
                yield "power", lambda seconds: self._of(next(others)).sustained(seconds)
            if "memory" in wanted:
                yield "memory", self._memory
            if "pcie" in wanted:
                yield "pcie", self.copies.sustained

    def _of(self, name: str, most_ms: float = MOST_MS) -> Products:
        if not self.products or (self.products[0].name, self.products[0].most_ms) != (name, most_ms):
            self.products.clear()
            self.torch.cuda.empty_cache()
            self.products.append(Products(self.torch, name, self.device, most_ms))
        return self.products[0]

    def _memory(self, seconds: float) -> Dict[str, Any]:
        self.products.clear()
        self.torch.cuda.empty_cache()
        return self.memory.sustained(seconds)


WORKLOAD = Workload(run, runtime="torch", seconds=120, typical_seconds=5)
