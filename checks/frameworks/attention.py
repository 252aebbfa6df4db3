"""Attention has a fast implementation on each GPU, and every implementation is right.

What it means
torch's scaled_dot_product_attention chooses between several implementations. The fast ones (flash, cuDNN, memory-efficient) do
not store the table of all scores. The implementation called math stores it and needs many times the memory and the time.

How it is judged
Causal attention runs in bf16 (fp16 before Ampere), first with the implementation that torch chooses, then with each
implementation that works here. Each result is compared with one computed in fp64. The check warns if torch chooses math although
the GPU supports a faster one. The speed is compared with that of the same GPUs in this machine and with the saved baseline.

Known exceptions
Flash requires Ampere or newer; cuDNN's requires Hopper, or Ampere with a recent cuDNN. Without these, memory-efficient is the
fast one. GPUs before Volta have only math.

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
    title="Attention uses its slow implementation, which stores all scores",
    why="This torch has no fast implementation that works on this GPU, or its settings disable it. Long contexts then need "
    "many times the memory and the time.",
    action=Action.INSTALL,
    fixes=(
        look(
            "Show why torch rejects each fast implementation",
            "gpudoctor check --only attention -v --format json | grep -A1 unavailable",
        ),
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
        raise Skip("no implementation finished", Skip.NO_ANSWER)


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
    return f"torch chooses {', '.join(sorted(map(str, chosen)))}{said}, all results correct"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(ONLY_MATH, *faults.ALL),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("performance", "pytorch"),
)
