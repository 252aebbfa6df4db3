"""CUDA graphs can be captured and replayed through torch, are right, and save launches.

What it means
A small kernel takes less time to run than to launch. A CUDA graph records many launches once and replays them as one. Serving
engines and torch.compile (mode reduce-overhead) rely on graphs.

How it is judged
Some dozens of small kernels are captured and replayed with new numbers. The result must equal that of the same kernels launched
one by one, and a replay must not be slower than the launches.

Known exceptions
On a processor that launches very fast, a graph saves little. Settings that make launches synchronous, such as
CUDA_LAUNCH_BLOCKING, are judged by cuda-environment.

References
https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.measured import Run
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import faults, launching, rounding, slowness
from gpudoctor.model import Action, Check, Figure, Finding, Problem, Skip, Status

WORKLOAD = "cuda-graphs"
SLOWER = 1.2  # times the time of the kernels launched one by one

NO_GAIN = Problem(
    id="cuda-graph-slower-than-launches",
    title="Replaying a CUDA graph is slower than launching its kernels",
    why="A replay is one launch for many kernels. If it is slower, something such as a profiler or a debugger intercepts every "
    "kernel of a graph, or the driver has a fault.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Look for profilers and debuggers that are still enabled", "env | grep -E 'CUDA_|NSIGHT|NVTX|PROFILE'"),
        look("Measure again on an idle machine", "gpudoctor check --only cuda-graphs,kernel-launch"),
    ),
    references=("https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",),
    status=Status.WARN,
)


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        bad = rounding.wrong(run.values.get("result", {}))
        for name, what in (("eager", "small kernels one by one"), ("graph", "small kernels in a graph")):
            if name in run.values:
                value, during = run.values[name]["microseconds_per_kernel"], run.values[name].get("during", {})
                wrong = bad if name == "graph" else ""
                yield Figure(what, value, "µs each", run.gpu, less_is_better=True, wrong=wrong, during=during)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from (slowness.wrong(figure) for figure in facts.once(figures) if figure.wrong)
    runs = facts.measured.runs(WORKLOAD)
    for run in runs:
        yield from judge_gain(facts, run)
    if not any("result" in run.values for run in runs):
        raise Skip("the graph did not finish: see measurements", Skip.NO_ANSWER)


def judge_gain(facts: Facts, run: Run) -> Iterator[Finding]:
    if not {"eager", "graph"} <= set(run.values):
        return
    eager, graph = (run.values[name]["microseconds_per_kernel"] for name in ("eager", "graph"))
    if graph > SLOWER * eager:
        words = f"GPU {run.gpu}: {graph:.1f} µs per kernel in a graph, {eager:.1f} µs one by one"
        found = NO_GAIN.found(words, {"graph_microseconds": graph, "eager_microseconds": eager}, run.gpu, partial=True)
        set_here = (name for name in launching.VARIABLES if facts.environment.get(name) not in (None, "", "0"))
        yield replace(found, because=launching.VARIABLES.get(next(set_here, ""), ""))


def summary(facts: Facts) -> str:
    values = {figure.what: figure.value for figure in facts.once(figures)}
    graph, eager = values.get("small kernels in a graph", 0), values.get("small kernels one by one", 0)
    return f"{graph:.1f} µs per kernel in a CUDA graph, {eager:.1f} µs one by one"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_GAIN, faults.WRONG),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("performance", "pytorch"),
)
