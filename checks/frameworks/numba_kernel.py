"""Numba compiles a Python function for each GPU, and the kernel computes rightly.

What it means
Numba turns Python into GPU code by NVVM, a library of the CUDA toolkit, and hands the result to the driver. Either can be missing
or of a release that does not fit the other, which shows when the first kernel is compiled.

How it is judged
A saxpy by numba.cuda.jit on whole numbers: every element of the result must be exact. Its speed is compared with that of the same
GPUs in this machine and with the saved baseline; memory-bandwidth judges the memory itself.

Known exceptions
Without Numba there is nothing to look at. An NVVM that is not found is told by measurements, in Numba's words, and by numba.

References
https://nvidia.github.io/numba-cuda/
https://numba.readthedocs.io/en/stable/cuda/overview.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.measured import faults, slowness
from gpudoctor.judging.measured.shortfalls import between
from gpudoctor.model import Check, Figure, Finding, Skip

WORKLOAD = "numba-kernel"


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        if "saxpy" in run.values:
            values = run.values["saxpy"]
            bad = f"{values['wrong_elements']} wrong elements" if values["wrong_elements"] else ""
            yield Figure("Numba saxpy", values["gb_per_s"], "GB/s", run.gpu, wrong=bad, during=values.get("during", {}))


def judge(facts: Facts) -> Iterator[Finding]:
    yield from slowness.judge(facts, facts.once(figures))
    if any("saxpy" not in run.values for run in facts.measured.runs(WORKLOAD)):
        raise Skip("Numba's kernel did not come to its end: see measurements", Skip.NO_ANSWER)


def summary(facts: Facts) -> str:
    cold = [run.values["saxpy"]["cold_seconds"] for run in facts.measured.runs(WORKLOAD) if "saxpy" in run.values]
    speeds = [figure.value for figure in facts.once(figures)]
    said = [f"{between(speeds)} GB/s"] if speeds else []
    return "Numba: " + ", ".join(
        [*said, f"compiled and run the first time in {max(cold, default=0):.1f} s", "every element right"]
    )


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=faults.ALL,
    needs=("cuda-context",),
    explained_by=("numba",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
)
