"""Each GPU's memory is as fast as its datasheet implies, and data that is read from it is correct.

What it means
Most work on a GPU waits for its memory, including each token that a language model generates. Memory that is slower than
usual for its kind slows all of that down.

How it is judged
Kernels that need only the driver read, write, copy and combine (saxpy, triad) buffers far larger than the cache, and every
element of the result is verified. Each figure is compared with the datasheet times the share that healthy GPUs reach, with
the median of the same GPUs in this machine, and with its own saved baseline. The clocks, power, heat and other processes
observed meanwhile explain why a slow one is slow.

Known exceptions
A GPU that is not in the tables is judged by its own memory clock and width, and the report says so. A MIG slice has a part of
the memory's width but does not report which, so only its siblings and its baseline count. If other processes leave so little
memory that a buffer is read in less than 0.1 ms, the figures are shown with their size and not compared. ECC costs a few per
cent on GPUs with GDDR memory.

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
LEAST_SECONDS = 1e-4  # to read a buffer: below that, launch times distort the figure too much to compare it
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
    return f"memory at {shortfalls.between(speeds)} GB/s, all elements correct"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=faults.ALL,
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("memory", "performance"),
)
