"""Each GPU's memory is as fast as its datasheet lets expect, and what is read from it is right.

What it means
Most work on a GPU waits for its memory: so does each word that a language model writes. Memory that is slower than that of its
kind makes all of that slower.

How it is judged
Kernels of gpudoctor's own, through the driver alone, read, write, copy and combine (saxpy, triad) buffers far larger than the
cache, and every element of the result is verified. Each counts, against the datasheet times the share that healthy
GPUs reach, against the median of the same GPUs in this machine, and against its own saved baseline. The clocks, power, heat
and other processes that were seen meanwhile say why a slow one is slow.

Known exceptions
A GPU that is in no table is judged by its own memory clock and width, and the report says so. A MIG slice has a part of the
memory's width that it does not tell: only its siblings and its baseline count. Where others left so little memory that a buffer
is read in less than 0.1 ms, the figures are shown with their size, and are compared with nothing. ECC costs some percent on
GPUs with GDDR memory.

References
https://github.com/te42kyfo/gpu-benches/tree/master/gpu-stream
https://www.cs.virginia.edu/stream/
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.measured import Run
from gpudoctor.judging.measured import expect, faults, shortfalls, slowness
from gpudoctor.model import Check, Figure, Finding

WORKLOAD = "memory-bandwidth"
LEAST_SECONDS = 1e-4  # for a buffer: in less than that, launches weigh too much for the figure to be compared with another
KERNELS = ("read", "write", "copy", "memcpy", "saxpy", "triad")


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        yield from figures_of(facts, run)


def figures_of(facts: Facts, run: Run) -> Iterator[Figure]:
    assert run.gpu is not None
    expected, of = expect.memory_gb_per_s(facts, run.gpu), ""
    size = run.values.get("buffer", {}).get("bytes")
    if size and expected.value and size < LEAST_SECONDS * expected.value * 1e9:
        expected, of = expect.NOTHING, f", {size // 1_000_000} MB"
    for name, result in ((name, run.values[name]) for name in KERNELS if name in run.values):
        count = result["wrong_elements"]
        yield Figure(
            f"memory {name}{of}",
            result["gb_per_s"],
            "GB/s",
            run.gpu,
            expected.value,
            expected.rule,
            wrong=f"{count} wrong elements" if count else "",
            during=result.get("during", {}),
            unlisted=expected.unlisted,
        )


def judge(facts: Facts) -> Iterator[Finding]:
    yield from slowness.judge(facts, facts.once(figures))


def summary(facts: Facts) -> str:
    speeds = [figure.value for figure in facts.once(figures)]
    return f"memory at {shortfalls.between(speeds)} GB/s, every element right"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=faults.ALL,
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
)
