"""GPU memory is had and given back without delay.

What it means
Programs ask the driver for memory when they start, and those without an allocator of their own all the time. The stream-ordered
pools of CUDA make that nearly free. Where it takes milliseconds, something watches or holds the driver up.

How it is judged
cuMemAlloc and cuMemFree of 1 and 64 MiB, and the same from a pool of the program's own, whose memory is written and read. What
it costs is shown; only more than 20 ms, from a pool more than 2 ms, warns.

Known exceptions
GPUs and drivers before CUDA 11.2, some vGPUs and WSL versions have no pools. cuMemFree waits for the GPU, so that it is slow
while others work on it. Frameworks keep their memory and ask rarely.

References
https://developer.nvidia.com/blog/using-cuda-stream-ordered-memory-allocator-part-1/
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import faults, launching, slowness
from gpudoctor.judging.measured.shortfalls import Shortfall
from gpudoctor.model import Action, Check, Figure, Finding, Problem, Status

WORKLOAD = "allocation"
AGAIN = "gpudoctor check --only allocation --gpus <index>"
MOST = {"cuMemAlloc": 20_000.0, "pool": 2_000.0}  # microseconds

SLOW = Problem(
    id="allocation-slow",
    title="Getting GPU memory takes milliseconds",
    why="The driver is held up: by another process in the same driver, by a debugger or profiler, or by a busy processor.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("See who else uses the GPU", "nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv"),
        look("Look for variables of debuggers and profilers", "env | grep -E 'CUDA_|NSIGHT|PROFILE'"),
        look("Measure again while the machine is idle", AGAIN),
    ),
    references=("https://developer.nvidia.com/blog/using-cuda-stream-ordered-memory-allocator-part-1/",),
)


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        for name, result in run.values.items():
            if isinstance(result, dict) and "microseconds" in result:
                count = result["wrong_bytes"]
                wrong = f"{count} wrong bytes" if count else ""
                during = result.get("during", {})
                yield Figure(name, result["microseconds"], "µs", run.gpu, less_is_better=True, wrong=wrong, during=during)


def judge(facts: Facts) -> Iterator[Finding]:
    found = facts.once(figures)
    yield from slowness.wrong_results(facts, found)
    yield from launching.judge(facts, [shortfall for figure in found for shortfall in too_long(figure)], SLOW)


def too_long(figure: Figure) -> Iterator[Shortfall]:
    most = MOST[figure.what.split()[0]]
    if figure.value > most:
        yield Shortfall(figure, most / figure.value, 1.0, f"the pace of {most / 1000:g} ms that is enough")


def summary(facts: Facts) -> str:
    worst: dict[str, float] = {}
    for figure in facts.once(figures):
        worst[figure.what] = max(worst.get(figure.what, 0.0), figure.value)
    return ", ".join(f"{name}: {value:.1f} µs" for name, value in worst.items())


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(SLOW, *faults.ALL),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
)
