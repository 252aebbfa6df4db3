"""All-reduces across all ranks, measured like nccl-tests. Rank 0 takes the times, every rank verifies."""

from __future__ import annotations

import functools
import time
from typing import Any, Callable, Dict, List, Optional

from gpudoctor.worker.measuring import nccl
from gpudoctor.worker.measuring.bench import summary
from gpudoctor.worker.measuring.rank import Rank

MIB = 1 << 20
SIZES = (MIB, 16 * MIB, 256 * MIB, 1024 * MIB)
SHARE_OF_FREE = 4  # no buffer uses more than a quarter of the free memory
SMALL_BYTES = 8
ROW = 4096  # elements after which the pattern repeats
LARGEST = 8  # the pattern's numbers are smaller than this, so that sums over 36 ranks are exact in bf16
WARM_UP = 3
REPEATS = 5
BATCH_SECONDS = 0.06  # between two synchronizations
ITERATIONS = (2, 200)
PATIENCE_SECONDS = 1.0  # sizes whose all-reduce would take longer are skipped


def rows(rank: Rank, elements: int, dtype: Any) -> List[Any]:
    """The input of each rank: random whole numbers that all ranks know."""
    torch = rank.torch
    found = []
    for number in range(rank.ranks):
        generator = torch.Generator().manual_seed(number)
        row = torch.randint(0, LARGEST, (min(ROW, elements),), generator=generator)
        found.append(row.to(device=rank.device, dtype=dtype))
    return found


def wrong_elements(rank: Rank, buffer: Any, work: Optional[Callable[[], Any]] = None) -> int:
    """All-reduces a pattern in `buffer`, by `work` if given, and counts the elements that are not the exact sum."""
    pattern = rows(rank, buffer.numel(), buffer.dtype)
    lines = buffer.view(-1, len(pattern[0]))
    lines.copy_(pattern[rank.number].expand_as(lines))
    work() if work else rank.torch.distributed.all_reduce(buffer)
    return int((lines != sum(pattern)).sum().item())


def seconds_each(rank: Rank, work: Callable[[], Any], iterations: int) -> float:
    """As in nccl-tests: many iterations between two synchronizations, divided by their number."""
    rank.barrier()
    start = time.perf_counter()
    for _ in range(iterations):
        work()
    rank.synchronize()
    return (time.perf_counter() - start) / iterations


def timed(rank: Rank, work: Callable[[], Any]) -> Dict[str, Any]:
    """{"microseconds", "spread", "iterations"} of one call."""
    for _ in range(WARM_UP):
        work()
    fewest, most = ITERATIONS
    wanted = BATCH_SECONDS / seconds_each(rank, work, fewest)
    iterations = rank.agreed(int(max(fewest, min(most, wanted))), "MIN")
    found = summary([seconds_each(rank, work, iterations) * 1e6 for _ in range(REPEATS)])
    return {"microseconds": found["median"], "spread": found["spread"], "iterations": iterations}


def latency(rank: Rank) -> None:
    """Stores "latency": consecutive all-reduces of 8 bytes; and the first result that every rank verifies."""
    torch = rank.torch
    buffer = torch.zeros(SMALL_BYTES // 4, dtype=torch.float32, device=rank.device)
    with rank.bench.section("latency") as values:
        rank.keep(wrong_elements={name_of(SMALL_BYTES): wrong_elements(rank, buffer)})
        buffer.zero_()
        values.update(bytes=SMALL_BYTES, **timed(rank, lambda: torch.distributed.all_reduce(buffer)))


def latency_of_nccl(rank: Rank) -> None:
    """Stores "latency of NCCL": all-reduces of 8 bytes without torch, if the library that it has loaded is known."""
    own = nccl.of(rank)
    if own is None:
        return
    buffer = rank.torch.zeros(SMALL_BYTES // 4, dtype=rank.torch.float32, device=rank.device)
    with rank.bench.section("latency of NCCL") as values:
        work = own.all_reduce(buffer, buffer)
        values.update(bytes=SMALL_BYTES, **timed(rank, work))
    so_far, small = rank.own["wrong_elements"], name_of(SMALL_BYTES)
    rank.keep(wrong_elements=dict(so_far, **{small: so_far[small] + wrong_elements(rank, buffer, work)}))


def bandwidth(rank: Rank) -> None:
    """Stores "all-reduce 1 MiB" ...: {"bytes", "microseconds", "spread", "algorithm_gb_per_s", "bus_gb_per_s"}, bf16, in place.

    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    dtype = rank.torch.bfloat16 if rank.device.type == "cuda" else rank.torch.float32
    most = rank.agreed(rank.free_bytes() // SHARE_OF_FREE, "MIN")
    for size in SIZES:
        if size > most:
            return
        buffer = rank.torch.empty(size // dtype.itemsize, dtype=dtype, device=rank.device)
        wrong = wrong_elements(rank, buffer)
        with rank.bench.section("all-reduce " + name_of(size)) as values:
            values.update(timed(rank, functools.partial(rank.torch.distributed.all_reduce, buffer)), bytes=size)
            values["algorithm_gb_per_s"] = size / values["microseconds"] / 1e3
            values["bus_gb_per_s"] = values["algorithm_gb_per_s"] * 2 * (rank.ranks - 1) / rank.ranks
        wrong += wrong_elements(rank, buffer)
        rank.keep(wrong_elements=dict(rank.own["wrong_elements"], **{name_of(size): wrong}))
        del buffer
        if rank.agreed(int(values["microseconds"]), "MAX") * 4 > PATIENCE_SECONDS * 1e6:
            return


def name_of(size: int) -> str:
    for unit, number in (("GiB", 1 << 30), ("MiB", MIB)):
        if size >= number:
            return "%d %s" % (size // number, unit)
    return "%d B" % size
