"""The ranks of the profiled program compute while they communicate.

What it means
Data-parallel training sums gradients over all GPUs. Done while the backward pass still computes, this costs little; done after
it, all of it is lost.

How it is judged
gpudoctor profile records the kernels of NCCL. Time in which only they ran is a problem from 10 % of the window on. It contains
the time in which a rank waits in a collective for a slower one.

Known exceptions
Tensor parallelism needs its collectives at once; they can only be made faster.

References
https://docs.pytorch.org/docs/stable/notes/ddp.html
https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.traced_ranks import evidence, percent, where, worst
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

LEAST = 0.10
EXPOSED = Problem(
    id="communication-not-overlapped",
    title="The GPUs wait for collectives while nothing computes",
    why="While only NCCL's kernels run, the rest of the GPU is idle. Either the collectives start too late, or one "
    "rank is slower and "
    "the others wait in them for it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Let DistributedDataParallel start early: one backward per step, gradient_as_bucket_view=True, no_sync() "
            "for accumulation"
        ),
        Fix("With collectives of your own: use async_op=True, compute, and wait() when the result is needed"),
        Fix("Measure the links between the GPUs", "gpudoctor check --only all-reduce,peer-bandwidth", kind="read"),
    ),
    references=("https://docs.pytorch.org/docs/stable/notes/ddp.html",),
)


def lost(rank: Rank) -> float:
    return rank.share("exposed_communicating_s")


def judge(facts: Facts) -> Iterator[Finding]:
    rank, share = worst(facts, lost)
    if not rank.share("communicating_s"):
        raise Skip("no collective was recorded")
    if share < LEAST:
        return
    whole = rank.share("communicating_s")
    every = [lost(one) for one in facts.job.traced.ranks]
    least = f", {percent(min(every))} in the best rank" if len(every) > 1 else ""
    said = f"collectives take {percent(whole)} of the time{where(rank)}, {percent(share)} of it while nothing computes{least}"
    yield EXPOSED.found(said, evidence(rank, share, collectives=dict(rank.value.get("collectives") or {})))


def summary(facts: Facts) -> str:
    rank, share = worst(facts, lost)
    return f"collectives take {percent(rank.share('communicating_s'))} of the time, {percent(share)} while nothing computes"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(EXPOSED,),
    tags=("multi-gpu", "nccl", "performance"),
)
