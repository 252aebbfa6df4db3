"""The memory that torch reserved for the profiled program can be used.

What it means
torch cuts large segments of GPU memory into blocks. Blocks of other sizes than before fit no free piece; with time much of the
memory is reserved but lies in pieces that are too small. The program then runs out of memory although enough is free.

How it is judged
gpudoctor profile --memory reads the history of torch's allocator in the steps in detail. If torch reserved 80 % of the GPU's
memory or more, and at the peak 15 % of that or more was free but not used, it is a problem.

Known exceptions
Where much of the GPU's memory was never reserved, fragments cost nothing: they are shown, and not judged. Programs with another
allocator than torch's, or that record the history themselves, are not judged.

References
https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf
https://docs.pytorch.org/docs/stable/torch_cuda_memory.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.traced_memory import share_lost, share_reserved
from gpudoctor.judging.jobs.traced_ranks import percent, where, worst
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

LEAST_RESERVED, LEAST_LOST = 0.80, 0.15
GIB = 1 << 30
FRAGMENTS = Problem(
    id="gpu-memory-in-fragments",
    title="The GPU memory is nearly full, much of it in unusable pieces",
    why="A block of memory must lie in one piece. If the free pieces are too small, torch allocates more from the driver, "
    "until that fails.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Let torch extend its segments: free pieces are then joined",
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            kind="set",
            where="shell",
            undo="unset PYTORCH_CUDA_ALLOC_CONF",
        ),
        Fix("Run the largest batch first, and pad batches to a few sizes: later blocks then fit the pieces of the first ones"),
        Fix("Create buffers that live for long, such as a KV cache, once and before the first step"),
    ),
    references=(
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf",
        "https://docs.pytorch.org/docs/stable/torch_cuda_memory.html",
    ),
)


def lost(rank: Rank) -> float:
    return share_lost(rank.allocations) if rank.allocations else 0.0


def judge(facts: Facts) -> Iterator[Finding]:
    rank, share = worst(facts, lost)
    found = rank.allocations
    if found is None:
        raise Skip("no history of torch's allocations was recorded (gpudoctor profile --memory)")
    full = share_reserved(found, rank)
    if full is None:
        raise Skip("the size of the GPU's memory is unknown")
    if full < LEAST_RESERVED or share < LEAST_LOST:
        return
    said = f"torch reserved {found.reserved / GIB:.1f} GiB, {percent(full)} of the GPU's memory{where(rank)}, of which "
    said += (
        f"{found.lost / GIB:.1f} GiB were not in use at the peak; the largest free block has {found.largest_free / GIB:.2f} GiB"
    )
    evidence = {"reserved_gib": round(found.reserved / GIB, 2), "in_use_gib": round(found.peak / GIB, 2), "pieces": found.pieces}
    yield FRAGMENTS.found(said, evidence)


def summary(facts: Facts) -> str:
    rank, share = worst(facts, lost)
    found = rank.allocations
    return f"{percent(share)} of the reserved memory was not in use at the peak of {found.peak / GIB:.1f} GiB" if found else ""


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(FRAGMENTS,),
    tags=("memory",),
)
