"""All-reduces over NCCL on all GPUs at once, together with matrix products, for minutes; every sum is verified: `gpudoctor burn`.

The ranks of a torchrun session load this file, too: each adds on one stream and multiplies on another.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Optional

from gpudoctor.worker.measuring import all_reduce
from gpudoctor.worker.measuring.bench import TOGETHER, Bench, Workload
from gpudoctor.worker.measuring.rank import Rank
from gpudoctor.worker.workloads import distributed, gemm
from gpudoctor.worker.workloads.burn import HOTTEST, LEAST_SECONDS, MOST_SECONDS, SECONDS, STRETCHES
from gpudoctor.worker.workloads.burning.products import Products

BYTES = 256 << 20
ROUND_SECONDS = 0.25  # of work that is queued before the ranks wait for it


def run(bench: Bench) -> None:
    """See burn."""
    distributed.session(bench, "nccl", __name__)


def burn(rank: Rank, seconds: Optional[float]) -> None:
    """Stores stretches "sums 0" …: {"load", "sums", "bus_gb_per_s", "seconds", "products" and "tflops" of rank 0, "wrong_words":
    GPU -> how many elements of sums and words of products were wrong}; complete: {"seconds"} at the very end."""
    total = SECONDS if seconds is None else float(seconds)
    load = Load(rank)
    end = time.monotonic() + total
    length = min(MOST_SECONDS, max(LEAST_SECONDS, total / STRETCHES))
    number = 0
    while rank.agreed(int(time.monotonic() < end), "MIN"):
        with rank.bench.section("sums %d" % number) as values:
            values.update(load.sustained(length))
        number += 1
    rank.bench.keep("complete", seconds=total)


class Load:
    """The buffer of the sums and the matrices of one rank; without a GPU it has no matrices."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        torch = rank.torch
        self.is_cuda = rank.device.type == "cuda"
        self.products = Products(torch, hottest(torch), rank.device) if self.is_cuda else None
        self.stream = torch.cuda.Stream() if self.is_cuda else None
        dtype = torch.bfloat16 if self.is_cuda else torch.float32
        size = rank.agreed(min(BYTES, rank.free_bytes() // all_reduce.SHARE_OF_FREE), "MIN")
        elements = max(1, size // dtype.itemsize // all_reduce.ROW) * all_reduce.ROW
        pattern = all_reduce.rows(rank, elements, dtype)
        self.own, self.expected = pattern[rank.number], sum(pattern)
        self.lines = torch.empty(elements, dtype=dtype, device=rank.device).view(-1, all_reduce.ROW)
        self.wrong = torch.zeros((), dtype=torch.int64, device=rank.device)
        self.sums(1)
        self.rank.synchronize()
        self.sums_each = rank.agreed(self._fitting(), "MIN")

    def _fitting(self) -> int:
        """How many sums fit into a round."""
        began = time.monotonic()
        self.sums(2)
        self.rank.synchronize()
        return max(1, int(ROUND_SECONDS / ((time.monotonic() - began) / 2)))

    def sums(self, count: int) -> None:
        """Queues all-reduces of the same numbers. What differs from the exact sum is counted on the GPU."""
        for _ in range(count):
            self.lines.copy_(self.own.expand_as(self.lines))
            self.rank.torch.distributed.all_reduce(self.lines)
            self.wrong += (self.lines != self.expected).sum()

    def round(self) -> int:
        """One round of both loads; returns how many products."""
        if self.products is None or self.stream is None:
            self.sums(self.sums_each)
            return 0
        count = max(1, int(ROUND_SECONDS * 1000 / self.products.milliseconds))
        self.stream.wait_stream(self.rank.torch.cuda.current_stream())
        self.products.run(count)
        with self.rank.torch.cuda.stream(self.stream):
            self.sums(self.sums_each)
        self.rank.synchronize()
        return count

    def sustained(self, seconds: float) -> Dict[str, Any]:
        rounds, products, began = 0, 0, time.monotonic()
        while self.rank.agreed(int(time.monotonic() - began < seconds), "MIN"):
            products += self.round()
            rounds += 1
        spent = time.monotonic() - began
        sums, ranks = rounds * self.sums_each, self.rank.ranks
        algorithm = sums * self.lines.numel() * self.lines.element_size() / spent / 1e9
        bus = algorithm * 2 * (ranks - 1) / ranks
        values: Dict[str, Any] = {"load": "sums", "sums": sums, "bus_gb_per_s": bus, "seconds": spent}
        wrong = int(self.wrong.item())
        self.wrong.zero_()
        if self.products is not None:
            values.update(products=products, tflops=2.0 * self.products.size**3 * products / spent / 1e12)
            wrong += int(self.products.wrong.item()) + int(self.products.check["wrong"])
            self.products.wrong.zero_()
        return dict(values, wrong_words=_of_each(self.rank, wrong))


def hottest(torch: Any) -> str:
    return next(name for name in HOTTEST if not gemm.lacking(torch, name))


def _of_each(rank: Rank, value: int) -> Dict[str, int]:
    """GPU (CUDA's number) -> the value of its rank."""
    torch = rank.torch
    own = torch.tensor([rank.gpu, value], dtype=torch.int64, device=rank.device)
    found = [torch.empty_like(own) for _ in range(rank.ranks)]
    torch.distributed.all_gather(found, own)
    return {str(gpu): count for gpu, count in (each.tolist() for each in found)}


WORKLOAD = Workload(run, scope=TOGETHER, seconds=120, typical_seconds=8, starts_early=True)
