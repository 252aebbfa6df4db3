"""GPU memory is allocated and freed without delay.

What it means
Programs allocate GPU memory when they start, and programs without their own allocator do so all the time. CUDA's
stream-ordered pools make allocation nearly free. If it takes milliseconds, something monitors or blocks the driver.

How it is judged
Times cuMemAlloc and cuMemFree of 1 and 64 MiB, and the same from a memory pool, whose memory is written and read. The time is
shown. Only more than 20 ms, or more than 2 ms from a pool, warns.

Known exceptions
GPUs and drivers before CUDA 11.2, some vGPUs and WSL versions have no pools. cuMemFree waits for the GPU, so it is slow while
other programs use it. Frameworks keep their memory and rarely allocate.

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
    title="Allocating GPU memory takes milliseconds",
    why="The driver is delayed by another process, by a debugger or profiler, or by a busy CPU.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("List the processes that use the GPU", "nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv"),
        look("List variables of debuggers and profilers", "env | grep -E 'CUDA_|NSIGHT|PROFILE'"),
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
        yield Shortfall(figure, most / figure.value, 1.0, f"the speed at the limit of {most / 1000:g} ms")


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
    tags=("memory", "performance"),
)
