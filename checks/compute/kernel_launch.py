"""Kernels are launched without delay.

What it means
Each operation of a program is a launch that takes a few microseconds of CPU time. If it takes longer, GPUs wait for their
next kernel. Programs with many small kernels, such as a language model that generates token by token, become slow.

How it is judged
Times an empty kernel: launched and waited for, a thousand back to back, and a thousand as one CUDA graph. More than 50, 25
and 10 µs each warn; this is many times what a healthy machine needs. If CUDA_LAUNCH_BLOCKING is set, its cost is measured
too.

Known exceptions
The times include a microsecond or two of Python overhead. Under WSL2, Windows submits work to the GPU in batches, so four
times as much is allowed. A driver before CUDA 10.1 has no graphs.

References
https://developer.nvidia.com/blog/cuda-graphs/
https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import GOVERNOR, PROCESSOR, SLOWED_LAUNCHES, look
from gpudoctor.judging.measured import faults, launching
from gpudoctor.judging.measured.shortfalls import Shortfall
from gpudoctor.model import Action, Check, Figure, Finding, Problem, Status

WORKLOAD = "kernel-launch"
AGAIN = "gpudoctor check --only kernel-launch --gpus <index>"
ALONE, EACH, GRAPH = "kernel launched and waited for", "kernels back to back", "kernels in a CUDA graph"
NAMES = {"single": ALONE, "back to back": EACH, "graph": GRAPH}
MOST = {ALONE: 50.0, EACH: 25.0, GRAPH: 10.0}  # microseconds each
WSL_FACTOR = 4
WAITS = 0.6  # of a launch with waiting: if launches back to back take this long, they wait too
BLOCKING = "CUDA_LAUNCH_BLOCKING"

SLOW = Problem(
    id="kernel-launch-slow",
    title="Kernel launches take many times longer than they should",
    why="The GPU waits for the CPU. Each launch is delayed by a debugging variable, an injected profiler, too few or busy CPU "
    "cores, a power-saving mode or the host of a virtual machine.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        SLOWED_LAUNCHES,
        PROCESSOR,
        GOVERNOR,
        look("Measure again while the machine is idle", AGAIN),
    ),
    references=("https://developer.nvidia.com/blog/cuda-graphs/",),
)


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        for name, what in NAMES.items():
            result = run.values.get(name, {})
            if "microseconds" in result:
                yield Figure(what, result["microseconds"], "µs", run.gpu, less_is_better=True, during=result.get("during", {}))


def judge(facts: Facts) -> Iterator[Finding]:
    factor = WSL_FACTOR if facts.system.wsl else 1
    for run in facts.measured.runs(WORKLOAD):
        found = {figure.what: figure for figure in facts.once(figures) if figure.gpu == run.gpu}
        slow = [
            Shortfall(figure, factor * MOST[what] / figure.value, 1.0, f"the speed at the limit of {factor * MOST[what]:g} µs")
            for what, figure in found.items()
            if figure.value > factor * MOST[what]
        ]
        yield from launching.judge(facts, slow, SLOW) if slow else waiting(facts, found)


def waiting(facts: Facts, found: dict[str, Figure]) -> Iterator[Finding]:
    """What CUDA_LAUNCH_BLOCKING costs, if it is set."""
    value = facts.environment.get(BLOCKING)
    if not value or value.strip() == "0" or not {ALONE, EACH} <= set(found):
        return
    alone, each = found[ALONE], found[EACH]
    if each.value > WAITS * alone.value:
        words = f"GPU {each.gpu}: a kernel takes {each.value:.1f} µs back to back, {alone.value:.1f} µs alone: launches wait"
        yield replace(SLOW.found(words, {"index": each.gpu}, each.gpu, partial=True), because="cuda-launch-blocking-left-on")


def summary(facts: Facts) -> str:
    return launching.slowest(facts.once(figures))


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(SLOW, *faults.ALL),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("performance",),
)
