"""The host of the profiled program launches work faster than the GPU does it.

What it means
Each operator costs the host about 5 to 20 µs: Python, dispatch, launch. If the kernels are shorter than that, the GPU waits for
the host after each of them, whatever nvidia-smi calls its utilisation. If the kernels are long, other Python code between the
operators can still leave the GPU without work.

How it is judged
gpudoctor profile records the gaps between the work on the GPU, and what the host did meanwhile. Gaps in which the host launched
work or ran other code are a problem from 25 % of the time on. If they are at most 50 µs for each launch, and more than half of
the kernels run less than 10 µs, the launches are the cause, else the program's own code; the lines on which it was seen most are
named.

Known exceptions
If only the first seconds of a program could be recorded, this is only noted: it still loads and fills its caches.
The profiler itself makes each operator slower. Where steps without it are known, the idle time is reduced to what they leave.
Work that is launched as CUDA graphs is not judged by the length of its kernels. Launches that come late because the program waits
for the GPU every few kernels are judged by profiled-waits and profiled-copies.

References
https://docs.pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs/
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.traced_ranks import (
    CUDNN_SEARCH,
    between_launches,
    evidence,
    is_launching,
    never_gets_ahead,
    percent,
    waits,
    waits_for_pageable,
    where,
    worst,
)
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

LEAST = 0.25
MOST_LINES = 3
COMPILE = Fix("Compile the model: model = torch.compile(model, mode='reduce-overhead'), which fuses kernels and uses CUDA graphs")
LAUNCHES = Problem(
    id="launch-bound",
    title="The GPU waits for launches: the kernels are too short",
    why="The host needs longer to launch a kernel than the GPU to run it. A faster GPU would not help; fewer and "
    "longer kernels do.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        COMPILE,
        Fix("Give each step more work: a larger batch makes the kernels longer, not more"),
        Fix(
            "Use fused operations: an optimizer with fused=True, scaled_dot_product_attention, one large layer for "
            "several small ones"
        ),
    ),
    references=(
        "https://docs.pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html",
        "https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs/",
    ),
)
PYTHON = Problem(
    id="gpu-waits-for-python",
    title="The GPU waits for the program's own code on the CPU",
    why="Between its launches the program computes on the host, in Python or in operators on the CPU. The GPU finishes what it "
    "has and is idle.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Move the named lines out of the step, into workers of the DataLoader, or do the same with tensors on the GPU"),
        COMPILE,
        Fix("Show the Python stacks over time", "py-spy record --pid <pid> --output stacks.svg --native", kind="manual"),
    ),
    references=("https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",),
)


def lost(rank: Rank) -> float:
    return 0.0 if never_gets_ahead(rank, [*waits(rank), *waits_for_pageable(rank)]) else between_launches(rank)


def lines(rank: Rank) -> list[str]:
    """Those on which the main thread was seen most while it did not wait for the GPU."""
    rows = [row for row in rank.rows("lines") if row.get("file")]
    rows = sorted(rows, key=lambda row: row["waiting_share"] - row["share"])
    return [f"{row['file']}:{row['line']} ({percent(row['share'] - row['waiting_share'])})" for row in rows[:MOST_LINES]]


def judge(facts: Facts) -> Iterator[Finding]:
    rank, share = worst(facts, lost)
    if share < LEAST:
        return
    mean = rank.mean_kernel_us
    is_short = is_launching(rank) and (rank.short_share >= 0.5 or rank.gap("launching") > rank.gap("python"))
    found = evidence(
        rank,
        share,
        kernels=rank.kernel_count,
        mean_kernel_us=round(mean, 2),
        kernels_under_10_us_percent=round(100 * rank.short_share),
        lines=lines(rank),
    )
    if is_short:
        said = f"{rank.kernel_count} kernels of {mean:.1f} µs on average{where(rank)}; the GPU is idle between them for "
        finding = LAUNCHES.found(f"{said}{percent(share)} of the time", found)
    else:
        seen = f", most often at {lines(rank)[0]}" if lines(rank) else ""
        said = f"the GPU is idle for {percent(share)} of the time while the host runs other code{where(rank)}{seen}"
        finding = replace(PYTHON.found(said, found), because=CUDNN_SEARCH)
    yield finding.as_note if rank.is_start else finding


def summary(facts: Facts) -> str:
    rank, share = worst(facts, lost)
    return f"the GPU waits for launches for {percent(share)} of the time; kernels take {rank.mean_kernel_us:.0f} µs on average"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(LAUNCHES, PYTHON),
    tags=("performance",),
)
