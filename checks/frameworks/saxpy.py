"""PyTorch and Triton run saxpy correctly; its speed in every framework is shown next to the driver's.

What it means
saxpy (y = a x + y) reads and writes memory and computes almost nothing, so each framework should run it at the speed of the
memory. The same kernel in all of them shows what a framework costs.

How it is judged
PyTorch runs y.add_(x, alpha=2), and Triton compiles a kernel, on whole numbers: every element of the result must be exact. The
speeds are compared with those of the saved baseline. The summary also shows the speed through the driver (PTX), of CuPy and of
Numba, which other checks measure and judge.

Known exceptions
The check runs at level full, on the first GPU that is measured. Triton is left out if it is not installed or does not support the
GPU. Numba is timed by the host clock over ten launches, the others by events.

References
https://docs.pytorch.org/docs/stable/generated/torch.Tensor.add_.html
https://developer.nvidia.com/blog/six-ways-saxpy/
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.measured import faults, slowness
from gpudoctor.judging.measured.shortfalls import digits
from gpudoctor.model import Check, Figure, Finding, Skip

WORKLOAD = "saxpy-torch"
NAMES = {"torch": "torch saxpy", "triton": "Triton saxpy"}
ELSEWHERE = {"PTX": ("memory-bandwidth", "saxpy"), "CuPy": ("cupy-kernels", "raw_kernel"), "Numba": ("numba-kernel", "saxpy")}


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        for name, what in NAMES.items():
            if name in run.values:
                values = run.values[name]
                bad = f"{values['wrong_elements']} wrong elements" if values["wrong_elements"] else ""
                yield Figure(what, values["gb_per_s"], "GB/s", run.gpu, wrong=bad, during=values.get("during", {}))


def judge(facts: Facts) -> Iterator[Finding]:
    yield from slowness.judge(facts, facts.once(figures))
    if any("torch" not in run.values for run in facts.measured.runs(WORKLOAD)):
        raise Skip("PyTorch's saxpy did not finish: see measurements", Skip.NO_ANSWER)


def summary(facts: Facts) -> str:
    (run, *_) = facts.measured.runs(WORKLOAD)
    speeds = {name.partition(" ")[0]: run.values[key]["gb_per_s"] for key, name in NAMES.items() if key in run.values}
    for name, (workload, key) in ELSEWHERE.items():
        found = [each.values[key]["gb_per_s"] for each in known(lambda: facts.measured.runs(workload), ()) if key in each.values]  # noqa: B023
        if found:
            speeds[name] = found[0]
    return "saxpy in GB/s: " + ", ".join(f"{name} {digits(speed)}" for name, speed in speeds.items()) + "; all elements correct"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=faults.ALL,
    needs=("cuda-context",),
    explained_by=("torch",),
    level="full",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("pytorch",),
)
