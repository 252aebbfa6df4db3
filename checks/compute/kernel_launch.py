"""Kernels are launched without delay.

What it means
Each operation of a program is a launch that costs the processor some microseconds. Where it costs more, GPUs wait for their
next piece of work; programs with many small kernels, such as a language model that writes word by word, become slow.

How it is judged
A kernel that does nothing: launched and waited for, a thousand back to back, and a thousand as one CUDA graph. More than 50, 25
and 10 µs each warn: many times what a healthy machine needs. With CUDA_LAUNCH_BLOCKING set it is also measured what that costs.

Known exceptions
The times hold a microsecond or two of Python's own. Under WSL2 Windows hands work to the GPU in batches: four times as much is
allowed. A driver before CUDA 10.1 has no graphs.

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
WAITS = 0.6  # of a launch with waiting: launches back to back that take as long wait too
BLOCKING = "CUDA_LAUNCH_BLOCKING"

SLOW = Problem(
    id="kernel-launch-slow",
    title="Launching a kernel takes many times longer than it should",
    why="The GPU waits for the processor. A variable for debugging, an injected profiler, too few or busy processor cores, a "
    "power-saving mode or the host of a virtual machine delay each launch.",
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
            Shortfall(figure, factor * MOST[what] / figure.value, 1.0, f"the pace of {factor * MOST[what]:g} µs that is enough")
            for what, figure in found.items()
            if figure.value > factor * MOST[what]
        ]
        yield from launching.judge(facts, slow, SLOW) if slow else waiting(facts, found)


def waiting(facts: Facts, found: dict[str, Figure]) -> Iterator[Finding]:
    """What CUDA_LAUNCH_BLOCKING costs, where it is set."""
    value = facts.environment.get(BLOCKING)
    if not value or value.strip() == "0" or not {ALONE, EACH} <= set(found):
        return
    alone, each = found[ALONE], found[EACH]
    if each.value > WAITS * alone.value:
        words = f"GPU {each.gpu}: each of many kernels takes {each.value:.1f} µs, one alone {alone.value:.1f} µs: launches wait"
        yield replace(SLOW.found(words, {"index": each.gpu}, each.gpu, partial=True), because="cuda-launch-blocking-left-on")


def summary(facts: Facts) -> str:
    worst: dict[str, float] = {}
    for figure in facts.once(figures):
        worst[figure.what] = max(worst.get(figure.what, 0.0), figure.value)
    return ", ".join(f"{what}: {value:.1f} µs" for what, value in worst.items())


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(SLOW, *faults.ALL),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
)
