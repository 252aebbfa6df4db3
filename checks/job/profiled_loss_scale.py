"""The gradient scaler of the profiled program has found its scale.

What it means
FP16 gradients are scaled up so that they do not vanish. If they overflow, the scaler skips the optimizer's step and halves the
scale. This happens a few times at the beginning, and then every 2000 steps or so.

How it is judged
gpudoctor profile counts the updates of the scaler and the steps of the optimizer. If 30 % of at least 10 updates had no step,
the scale does not settle.

Known exceptions
With several optimizers, only the first that steps is counted.

References
https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.traced_ranks import evidence, percent, where, worst
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

LEAST_UPDATES, MOST_SKIPPED = 10, 0.3
OVERFLOWS = Problem(
    id="loss-scale-never-settles",
    title="The gradient scaler skips step after step",
    why="A skipped step computes everything and learns nothing. Gradients that overflow at any scale contain inf or "
    "NaN for another "
    "reason: a loss that diverges, or an operation that overflows in FP16.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Use BF16, which has the range of FP32 and needs no scaler: torch.autocast('cuda', dtype=torch.bfloat16)"),
        Fix("Find where the first inf or NaN comes from: torch.autograd.set_detect_anomaly(True) for a few steps"),
        Fix("Compute losses, norms and sums in FP32: call .float() on their inputs; clip gradients after scaler.unscale_"),
    ),
    references=("https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling",),
)


def updates(rank: Rank) -> int:
    return rank.count("scaler_updates")


def skipped(rank: Rank) -> float:
    return max(0.0, 1 - rank.count("optimizer_steps") / updates(rank)) if updates(rank) else 0.0


def judge(facts: Facts) -> Iterator[Finding]:
    rank, share = worst(facts, skipped)
    if not updates(rank):
        raise Skip("no gradient scaler was used")
    if updates(rank) >= LEAST_UPDATES and share >= MOST_SKIPPED:
        said = f"{percent(share)} of {updates(rank)} steps were skipped because gradients overflowed{where(rank)}"
        yield OVERFLOWS.found(said, evidence(rank, share, updates=updates(rank)))


def summary(facts: Facts) -> str:
    rank, share = worst(facts, skipped)
    return f"{percent(share)} of {updates(rank)} scaled steps were skipped"


CHECK = Check(judge=judge, summary=summary, problems=(OVERFLOWS,))
