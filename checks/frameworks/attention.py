"""Attention has a fast implementation on each GPU, and every implementation is right.

What it means
torch's scaled_dot_product_attention chooses among implementations. The fast ones (flash, cuDNN, memory-efficient) keep no
table of all scores; the one that is called math does, and needs many times the memory and the time.

How it is judged
Causal attention in bf16 (fp16 before Ampere), by what torch chooses and by each implementation alone, where it works here.
Each result is compared with one in fp64. That torch chooses math although the GPU could do better warns. The speed counts
against the same GPUs in this machine and the saved baseline.

Known exceptions
Flash needs Ampere or newer, cuDNN's needs Hopper or Ampere and a recent cuDNN; where these are missing, memory-efficient is
the fast one. On GPUs before Volta only math is there.

References
https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.measured import Run
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import expect, faults, rounding, slowness
from gpudoctor.model import Action, Check, Figure, Finding, Fix, Problem, Skip, Status

WORKLOAD = "attention"
FAST = ("flash", "cudnn", "efficient")
WAYS = ("default", *FAST, "math")
VOLTA = (7, 0)
DOCUMENTATION = "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"

ONLY_MATH = Problem(
    id="attention-without-fast-implementation",
    title="Attention runs by its slow implementation, which keeps all scores",
    why="This torch has no fast implementation that works on this GPU, or was told not to use one. Long contexts then need "
    "many times the memory and the time.",
    action=Action.INSTALL,
    fixes=(
        look("See why each is refused", "gpudoctor check --only attention -v --format json | grep -A1 unavailable"),
        Fix(
            "Install a torch that is built for this GPU (see the checks torch and driver-cuda-support)",
            "<python> -m pip install --upgrade torch",
            needs=("network",),
            verify="gpudoctor check --only attention",
            kind="install",
        ),
    ),
    references=(DOCUMENTATION,),
    status=Status.WARN,
)


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        for way in WAYS:
            result = run.values.get(way, {})
            if "wrong" in result:
                bad, during = rounding.wrong(result), result.get("during", {})
                yield Figure(f"attention, {way}", result["tflops"], "TFLOP/s", run.gpu, wrong=bad, during=during)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from slowness.judge(facts, facts.once(figures))
    for run in facts.measured.runs(WORKLOAD):
        yield from judge_choice(facts, run)
    if not facts.once(figures):
        raise Skip("no implementation came to its end", Skip.NO_ANSWER)


def judge_choice(facts: Facts, run: Run) -> Iterator[Finding]:
    found = expect.device(facts, run.gpu or 0)
    if run.values.get("choice", {}).get("implementation") != "math" or (found and found.compute_capability < VOLTA):
        return
    refused = {way: run.values[way]["unavailable"] for way in FAST if "unavailable" in run.values.get(way, {})}
    yield ONLY_MATH.found(f"GPU {run.gpu}: torch chooses math", {"refused": refused}, run.gpu, partial=True)


def summary(facts: Facts) -> str:
    chosen = {run.values["choice"]["implementation"] for run in facts.measured.runs(WORKLOAD) if "choice" in run.values}
    speeds = [figure.value for figure in facts.once(figures) if figure.what == "attention, default"]
    said = f", {min(speeds):.0f} TFLOP/s" if speeds else ""
    return f"torch chooses {', '.join(sorted(map(str, chosen)))}{said}, every result right"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(ONLY_MATH, *faults.ALL),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
)
