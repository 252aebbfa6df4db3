"""The profiled program has its next batch when the GPU needs it.

What it means
A DataLoader without workers reads and decodes in the training process, and the GPU waits. With too few workers the queue of
batches runs empty.

How it is judged
torch marks the time in which a program waits for the next batch of a DataLoader. If the GPU was idle meanwhile for 5 % of the
time or more, this is a problem.

Known exceptions
Loaders that are not torch's leave no such mark: their time counts as Python (profiled-launches), with their lines.

References
https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#enable-asynchronous-data-loading-and-augmentation
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.traced_ranks import evidence, percent, where, worst
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

LEAST = 0.05
WAITS = Problem(
    id="gpu-waits-for-data-loader",
    title="The GPU waits for the DataLoader",
    why="The next batch is not ready when the step before it is done. Reading, decoding and collating take longer than a step.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Load in parallel: DataLoader(…, num_workers=N, persistent_workers=True, prefetch_factor=4), N up to the "
            "cores per GPU"
        ),
        Fix("See where a worker spends its time", "py-spy dump --pid <pid>", kind="read"),
        Fix("Do less for each sample: store decoded and resized data, or decode on the GPU"),
    ),
    references=("https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading",),
)


def lost(rank: Rank) -> float:
    return rank.gap("loading")


def judge(facts: Facts) -> Iterator[Finding]:
    rank, share = worst(facts, lost)
    if share < LEAST:
        return
    loads = rank.count("loads")
    each = f", {1000 * float(rank.calls.get('loading_s') or 0) / loads:.1f} ms for each batch" if loads else ""
    said = f"the GPU is idle for {percent(share)} of the time while the program waits for its DataLoader{where(rank)}{each}"
    yield WAITS.found(said, evidence(rank, share, batches=loads))


def summary(facts: Facts) -> str:
    rank, share = worst(facts, lost)
    loads = rank.count("loads")
    return (
        f"{loads} batches loaded, which left the GPU idle for {percent(share)} of the time" if loads else "no DataLoader was used"
    )


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(WAITS,),
    tags=("performance",),
)
