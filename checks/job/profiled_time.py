"""The profiled program uses the GPU.

What it means
A program can run on the processor although a GPU is there: its tensors were never moved, or its framework has no CUDA. It is
then slow without an error.

How it is judged
gpudoctor profile recorded steps of an optimizer but no work on a GPU, on a machine that has one; or the program imported torch,
used the CPUs for at least 3 s after that, and never used CUDA. If the GPU was used, this check shows where the time
went: how long the GPU was busy, and what the host did while it was not.

Known exceptions
Nothing is said about a program of which nothing was recorded.

References
https://docs.pytorch.org/docs/stable/notes/cuda.html#device-agnostic-code
https://docs.pytorch.org/docs/stable/profiler.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.facts.known import known
from gpudoctor.judging.jobs.traced_ranks import percent
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

ON_CPU = Problem(
    id="program-ignores-gpu",
    title="The program computes on the processor although there is a GPU",
    why="Tensors and models stay on the processor until the program moves them. A model on the GPU is typically 10 to "
    "100 times as fast.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Move the model and each batch: model.to('cuda'), batch.to('cuda', non_blocking=True)"),
        Fix("See whether torch can use the GPU", "<python> -c 'import torch; print(torch.cuda.is_available())'", kind="read"),
    ),
    references=("https://docs.pytorch.org/docs/stable/notes/cuda.html#device-agnostic-code",),
)
DOING = {
    "allocating": "allocating memory",
    "loading": "waiting for the DataLoader",
    "compiling": "compiling",
    "after_waits": "after waiting for the GPU",
    "launching": "launching",
    "python": "in Python",
}
SHOWN, MOST_DISTORTION = 0.01, 0.9
LEAST_CPU_SECONDS = 3.0


def judge(facts: Facts) -> Iterator[Finding]:
    traced = facts.job.traced
    cpu_seconds, visible = traced.unused or (0.0, 0)
    gpus = known(lambda: len(facts.nvml.gpus), 0) or visible
    has_worked = any(rank.kernel_count for rank in traced.every_rank)
    on_cpu = [rank for rank in traced.every_rank if rank.steps]
    if has_worked or not gpus or not (on_cpu or cpu_seconds >= LEAST_CPU_SECONDS):
        _ = traced.ranks
        return
    python = known(lambda: facts.python.executable)
    found: dict[str, Any] = {"python": python} if python else {}
    if on_cpu:
        steps, each = on_cpu[0].steps, on_cpu[0].step_ms or 0.0
        said, found["steps"] = f"{steps} steps of {each:.1f} ms ran without any work on a GPU", steps
    else:
        said, found["cpu_seconds"] = f"its threads computed for {cpu_seconds:.0f} s without any work on a GPU", cpu_seconds
    yield ON_CPU.found(f"{said}; this machine has {gpus}", found)


def summary(facts: Facts) -> str:
    ranks = facts.job.traced.ranks
    rank = min(ranks, key=lambda one: one.share("busy_s"))
    said = f"the GPU is busy {percent(rank.share('busy_s'))} of {rank.window:.2f} s{_steps(rank)}"
    gaps = sorted(((rank.gap(name), words) for name, words in DOING.items()), reverse=True)
    idle = [f"{percent(share)} {words}" for share, words in gaps if share >= SHOWN]
    said += f"; idle: {', '.join(idle)}" if idle else ""
    if rank.distortion < MOST_DISTORTION and rank.idle >= SHOWN:
        said += f" (without the profiler about {percent(rank.idle * rank.distortion)} in all)"
    return said + (f" (the least busy of {len(ranks)} ranks)" if len(ranks) > 1 else "")


def _steps(rank: Rank) -> str:
    return f" ({rank.steps} steps of {rank.step_ms:.1f} ms)" if rank.step_ms else ""


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(ON_CPU,),
    tags=("performance",),
)
