"""Numba compiles a Python function for each GPU, and the kernel computes correctly.

What it means
Numba compiles Python to GPU code with NVVM, a library of the CUDA toolkit, and passes the result to the driver. If NVVM is
missing or its release does not fit the driver, compiling the first kernel fails.

How it is judged
numba.cuda.jit compiles a saxpy, which runs on whole numbers: every element of the result must be exact. Its speed is compared
with that of the same GPUs in this machine and with the saved baseline; memory-bandwidth judges the memory.

Known exceptions
The check is skipped without Numba. A missing NVVM is reported by numba, and by measurements with Numba's original error.

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
        raise Skip("Numba's kernel did not finish: see measurements", Skip.NO_ANSWER)


def summary(facts: Facts) -> str:
    cold = [run.values["saxpy"]["cold_seconds"] for run in facts.measured.runs(WORKLOAD) if "saxpy" in run.values]
    speeds = [figure.value for figure in facts.once(figures)]
    said = [f"{between(speeds)} GB/s"] if speeds else []
    return "Numba: " + ", ".join([*said, f"first run including compilation {max(cold, default=0):.1f} s", "all elements correct"])


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
