"""The profiled program's steps reuse the GPU's memory, and keep none of it.

What it means
torch keeps freed GPU memory for later tensors. If it finds no free block that is large enough, it calls cudaMalloc; if that
fails, it gives all unused blocks back (cudaFree, which waits for the GPU) and tries again: a retry.

A tensor that is kept from each step, or a loss that is kept with its graph, takes more memory with every step.

How it is judged
Retries in the profiled window are a problem, and calls of cudaMalloc or cudaFree that are repeated in about every step and in
which the GPU was idle for 2 % of the time or more, if at least half as many free memory as allocate it: a program that only
allocates still fills torch's pool. The memory of all tensors is read at the end of steps, 50 ms apart. It grows if a straight
line from the tenth step on explains 85 % of the readings, if each third has its part of the growth, and if it grew by more than
64 MiB and 0.1 % of the GPU in 30 steps or more.

Known exceptions
Programs without torch's allocator, or with PYTORCH_NO_CUDA_MEMORY_CACHING, allocate each time on purpose.

References
https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf
https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.memory_stats.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs import growing
from gpudoctor.judging.jobs.traced_ranks import CUDNN_SEARCH, evidence, is_repeated, percent, where, worst
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Status

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

GROWS = Problem(
    id="gpu-memory-grows-in-steps",
    title="Tensors take more GPU memory with every step",
    why="Something keeps tensors from step to step: losses in a list or summed with their graph, outputs of a validation without "
    "torch.no_grad(), a cache without a limit. It ends with an out-of-memory error.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Keep numbers instead of tensors from step to step: total += loss.item(), outputs.append(out.detach().cpu())"),
        Fix("Run validation and metrics under torch.no_grad() or torch.inference_mode()"),
        Fix("Show which lines allocated what is kept: gpudoctor profile --memory -- COMMAND", kind="manual"),
    ),
    references=("https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory",),
)
WARM_UP, LEAST_STEPS, LEAST_MIB, OF_GPU = 10, 30, 64.0, 0.001


def retries(rank: Rank) -> int:
    return rank.grown("num_alloc_retries") or 0


def lost(rank: Rank) -> float:
    return rank.gap("allocating") + 1e-6 * retries(rank)


def returns_memory(rank: Rank) -> bool:
    calls: Mapping[str, int] = rank.calls.get("allocations") or {}
    return 3 * sum(number for name, number in calls.items() if "Free" in name) >= rank.driver_allocations


def grown(rank: Rank) -> growing.Growth | None:
    """In steps and MiB."""
    total = float(rank.device.get("memory_bytes") or 0) / (1 << 20)
    settled = [(step, size) for step, size in rank.held if step > WARM_UP]
    found = growing.growth(settled, max(LEAST_MIB, OF_GPU * total))
    return found if found and found.seconds >= LEAST_STEPS else None


def judge(facts: Facts) -> Iterator[Finding]:
    yield from driver_calls(facts)
    for rank in facts.job.traced.ranks:
        if found := grown(rank):
            said = f"the tensors of torch took {found.grown:.0f} MiB more after {found.seconds:.0f} steps{where(rank)}"
            kept = evidence(rank, 0.0, grown_mib=round(found.grown), in_steps=round(found.seconds))
            yield GROWS.found(said, kept, confidence=Confidence.LIKELY)
            return


def driver_calls(facts: Facts) -> Iterator[Finding]:
    rank, _ = worst(facts, lost)
    share = rank.gap("allocating")
    is_costly = share >= LEAST and is_repeated(rank.driver_allocations, rank) and returns_memory(rank)
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
    problems=(RETRIES, GROWS),
    tags=("memory", "performance"),
)
