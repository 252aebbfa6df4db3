"""torch's caching allocator: memory kept when blocks are freed here and there, memory returned, time saved."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List

from gpudoctor.worker.measuring import clock, torch_gpu
from gpudoctor.worker.measuring.bench import Bench, Workload, summary
from gpudoctor.worker.measuring.driver import Driver

MIB = 1 << 20
BLOCK_BYTES = 8 * MIB  # from 1 to 10 MiB several blocks share a segment of 20 MiB
MOST_BLOCKS = 128
SHARE_OF_FREE = 4
CACHED, DIRECT = 200, 10  # allocations in a round
ROUNDS = 5
NEW_SETTINGS, SETTINGS = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"


def run(bench: Bench) -> None:
    """settings: {"backend", "caching", "expandable_segments", "text"}. See the functions below for the other results."""
    device = torch_gpu.gpu(bench)
    import torch

    found = settings(os.environ)
    backend = torch.cuda.get_allocator_backend()
    bench.keep("settings", backend=backend, **found)
    with bench.section("fragmentation") as values:
        values.update(fragmentation(torch, device))
    with bench.section("allocation") as values:
        values.update(allocation(torch, bench, device))
    bench.step("an allocation that is too large")
    if found["expandable_segments"]:  # it would take all free memory, piece by piece, before it fails
        bench.keep("too large", outcome="not tried: expandable segments")
    else:
        bench.keep("too large", **too_large(torch, device))


def settings(environment: Any) -> Dict[str, Any]:
    """The allocator settings in the environment."""
    text = environment.get(NEW_SETTINGS) or environment.get(SETTINGS) or ""
    options = dict(option.partition(":")[::2] for option in text.replace(" ", "").split(",") if option)
    return {
        "text": text,
        "caching": not environment.get(NO_CACHING),
        "expandable_segments": options.get("expandable_segments", "").lower() in ("true", "1"),
    }


def fragmentation(torch: Any, device: Any) -> Dict[str, Any]:
    """Bytes: with all blocks "full_*"; with every second one freed "half_*"; and after empty_cache without blocks "empty_*".

    driver_*: increase of memory in use, according to the driver. wrong_blocks: blocks that did not keep what was written.
    """
    torch.cuda.empty_cache()
    before = torch_gpu.free_bytes()
    count = max(2, min(MOST_BLOCKS, before // SHARE_OF_FREE // BLOCK_BYTES))
    blocks: List[Any] = [torch.full((BLOCK_BYTES,), number, dtype=torch.uint8, device=device) for number in range(count)]
    found = in_use(torch, "full", before)
    kept = blocks[::2]
    blocks.clear()
    found.update(in_use(torch, "half", before))
    torch.cuda.empty_cache()
    found.update(in_use(torch, "half_emptied", before))
    wrong = sum(int((block != 2 * number).any().item()) for number, block in enumerate(kept))
    kept.clear()
    torch.cuda.empty_cache()
    return {"block_bytes": BLOCK_BYTES, "blocks": count, **found, **in_use(torch, "empty", before), "wrong_blocks": wrong}


def in_use(torch: Any, when: str, free_before: int) -> Dict[str, int]:
    torch.cuda.synchronize()
    return {
        when + "_allocated_bytes": torch.cuda.memory_allocated(),
        when + "_reserved_bytes": torch.cuda.memory_reserved(),
        when + "_driver_bytes": free_before - int(torch.cuda.mem_get_info()[0]),
    }


def allocation(torch: Any, bench: Bench, device: Any) -> Dict[str, float]:
    """{"cached_microseconds", "driver_microseconds"}: to allocate and free a block, with torch and with the driver."""
    driver = Driver(bench.gpu)
    torch.empty(BLOCK_BYTES, dtype=torch.uint8, device=device)
    return {
        "cached_microseconds": microseconds(lambda: torch.empty(BLOCK_BYTES, dtype=torch.uint8, device=device), CACHED),
        "driver_microseconds": microseconds(lambda: driver.free(driver.allocate(BLOCK_BYTES)), DIRECT),
    }


def microseconds(work: Callable[[], Any], count: int) -> float:
    """The time of one of `count` calls, the median of some rounds."""
    rounds = []
    for _ in range(ROUNDS):
        began = clock.now()
        for _ in range(count):
            work()
        rounds.append((clock.now() - began) / count * 1e6)
    return summary(rounds)["median"]


def too_large(torch: Any, device: Any) -> Dict[str, Any]:
    """{"outcome", "message", "works_after"}: allocates twice the GPU's memory at once; "outcome" names the exception."""
    size = 2 * torch.cuda.get_device_properties(device).total_memory
    try:
        torch.empty(size, dtype=torch.uint8, device=device)
        outcome, message = "allocated", ""
    except torch.cuda.OutOfMemoryError as failure:
        outcome, message = "OutOfMemoryError", str(failure)
    except RuntimeError as failure:
        outcome, message = type(failure).__name__, str(failure)
    torch.cuda.empty_cache()
    works = bool((torch.ones(MIB, device=device) + 1 == 2).all().item())
    return {"outcome": outcome, "message": message[:300], "works_after": works}


WORKLOAD = Workload(run, runtime="torch", typical_seconds=1.5)
