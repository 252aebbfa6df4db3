"""cuDNN of the profiled program does not search for algorithms in its steps.

What it means
With torch.backends.cudnn.benchmark = True, cuDNN tries several algorithms for each new shape of a convolution and keeps the
fastest. With inputs whose shape changes all the time, it tries them all the time.

How it is judged
The setting is on, and a convolution saw four different input shapes or more, and more than one for each three steps, in the
profiled window.

Known exceptions
A few shapes that return, such as buckets of images, are searched once each; after a longer warm-up (--warmup) they are done.

References
https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cudnn.benchmark
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.traced_ranks import evidence, where, worst
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

LEAST_SHAPES = 4
TUNES = Problem(
    id="cudnn-benchmark-with-changing-shapes",
    title="cuDNN searches algorithms for shapes that keep changing",
    why="Each search runs every candidate once and waits for the GPU, which costs more than a better algorithm saves "
    "if the shape "
    "does not return.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Leave the search off: torch.backends.cudnn.benchmark = False"),
        Fix("Resize or pad the inputs to a few fixed shapes"),
    ),
    references=("https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cudnn.benchmark",),
)


def shapes(rank: Rank) -> float:
    return float(max((row["shapes"] for row in rank.rows("shapes")), default=0))


def judge(facts: Facts) -> Iterator[Finding]:
    rank, number = worst(facts, shapes)
    if not number:
        raise Skip("no convolution was recorded")
    if not rank.settings.get("cudnn_benchmark") or number < LEAST_SHAPES or number * 3 < rank.steps:
        return
    most = max(rank.rows("shapes"), key=lambda row: row["shapes"])
    some = ", ".join(most["some"][:2])
    said = f"cudnn.benchmark is on, and a convolution saw {number:.0f} input shapes{where(rank)}, such as {some}"
    yield TUNES.found(said, evidence(rank, rank.idle, shapes=int(number)), confidence=Confidence.LIKELY)


def summary(facts: Facts) -> str:
    rank, number = worst(facts, shapes)
    state = "on" if rank.settings.get("cudnn_benchmark") else "off"
    return f"cudnn.benchmark is {state}; convolutions saw at most {number:.0f} input shapes"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(TUNES,),
    tags=("performance",),
)
