"""The profiled program's steps reuse memory instead of allocating it from the driver.

What it means
torch keeps freed GPU memory for later tensors. If it finds no free block that is large enough, it calls cudaMalloc; if that
fails, it gives all unused blocks back (cudaFree, which waits for the GPU) and tries again: a retry.

How it is judged
Retries in the profiled window are a problem, and calls of cudaMalloc or cudaFree that are repeated in about every step and in
which the GPU was idle for 2 % of the time or more.

Known exceptions
Programs without torch's allocator, or with PYTORCH_NO_CUDA_MEMORY_CACHING, allocate each time on purpose.

References
https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf
https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.memory_stats.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.traced_ranks import CUDNN_SEARCH, evidence, is_repeated, percent, where, worst
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

LEAST = 0.02
RETRIES = Problem(
    id="allocator-returns-memory-in-steps",
    title="The steps allocate and free GPU memory from the driver",
    why="cudaMalloc and cudaFree take up to milliseconds, and cudaFree waits for all work of the GPU. A retry means "
    "that the memory is "
    "nearly full, or split into pieces that are too small.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Let torch extend its segments: less is lost to fragments",
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            kind="set",
            where="shell",
            undo="unset PYTORCH_CUDA_ALLOC_CONF",
        ),
        Fix("Remove torch.cuda.empty_cache() from the steps"),
        Fix("Reduce the memory that a step needs: a smaller batch, gradient checkpointing, zero_grad(set_to_none=True)"),
    ),
    references=("https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf",),
)


def retries(rank: Rank) -> int:
    return rank.grown("num_alloc_retries") or 0


def lost(rank: Rank) -> float:
    return rank.gap("allocating") + 1e-6 * retries(rank)


def judge(facts: Facts) -> Iterator[Finding]:
    rank, _ = worst(facts, lost)
    share = rank.gap("allocating")
    is_costly = share >= LEAST and is_repeated(rank.driver_allocations, rank)
    if not (retries(rank) or is_costly):
        return
    said = f"{rank.driver_allocations} calls of cudaMalloc and cudaFree in the profiled steps{where(rank)}"
    said += f", {retries(rank)} of them retries because memory was full" if retries(rank) else ""
    measured = evidence(
        rank, share, calls=rank.driver_allocations, retries=retries(rank), reserved_gib=rank.gib("reserved_bytes.all.peak")
    )
    found = RETRIES.found(f"{said}; the GPU is idle meanwhile for {percent(share)} of the time", measured)
    yield replace(found, because="" if retries(rank) else CUDNN_SEARCH)


def summary(facts: Facts) -> str:
    rank, _ = worst(facts, lost)
    peak = rank.gib("allocated_bytes.all.peak")
    return f"{rank.driver_allocations} allocations from the driver in the window" + (f", peak {peak:.1f} GiB" if peak else "")


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(RETRIES,),
    tags=("memory", "performance"),
)
