"""A small model learns on each GPU, in mixed precision with a gradient scaler.

What it means
A training step combines forward and backward passes, autocast, the scaler that keeps small fp16 gradients from vanishing, and the
optimizer. Training can fail on a machine that passes every single check.

How it is judged
Some dozens of steps of a transformer layer run. The first loss must equal that of fp32 within rounding, all losses must be
finite, and the last must be lower than the first. The scaler must not skip every step.

Known exceptions
One or two skipped steps at the start are normal: the scaler finds its scale that way.

References
https://docs.pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.measured import Run
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import faults, rounding
from gpudoctor.model import Action, Check, Figure, Finding, Fix, Problem, Skip

WORKLOAD = "training-step"
FALLS = 0.9  # share of the first loss that the last must be below
MOST_SKIPPED = 10
AMP = "https://docs.pytorch.org/docs/stable/amp.html"

DIVERGES = Problem(
    id="training-does-not-converge",
    title="A small model does not learn on this GPU",
    why="The same model learns everywhere else. A kernel computes wrongly in mixed precision, memory is faulty, or the "
    "installation mixes incompatible libraries.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        look("Check whether single operations are right", "gpudoctor check --only gemm,attention,convolution --gpus <index>"),
        look("Test the GPU's memory", "gpudoctor check --level full --only memory-pattern --gpus <index>"),
        Fix(
            "Try another environment: if the model learns there, the installation is at fault",
            'clean="$(mktemp -d)" && python3 -m venv "$clean" && "$clean"/bin/pip install torch\n'
            'gpudoctor check --only training-step --python "$clean"',
            needs=("network",),
            kind="install",
        ),
    ),
    references=(AMP,),
)


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        if "training" in run.values:
            result = run.values["training"]
            milliseconds, during = 1000 / result["steps_per_second"], result.get("during", {})
            yield Figure("small training step", milliseconds, "ms", run.gpu, less_is_better=True, during=during)


def judge(facts: Facts) -> Iterator[Finding]:
    for run in facts.measured.runs(WORKLOAD):
        yield from judge_learning(run)
    if not any("loss" in run.values for run in facts.measured.runs(WORKLOAD)):
        raise Skip("the training did not finish: see measurements", Skip.NO_ANSWER)


def judge_learning(run: Run) -> Iterator[Finding]:
    loss = run.values.get("loss", {})
    signs = list(wrong_with(loss, run.values.get("scaler", {}))) if loss else []
    if signs:
        evidence = {"index": run.gpu, "first_loss": loss["first"], "last_loss": loss["last"], "loss_in_fp32": loss["first_fp32"]}
        found = DIVERGES.found(f"GPU {run.gpu}: {'; '.join(signs)}", evidence, run.gpu, partial=True)
        yield replace(found, because=faults.WRONG.id)


def wrong_with(loss: dict[str, float | None], scaler: dict[str, float]) -> Iterator[str]:
    first, last = loss["first"], loss["last"]
    if not loss["finite"] or first is None or last is None:
        yield "a loss is not a number"
        return
    if rounding.wrong(loss):
        yield f"the first loss is {first:.4g} in mixed precision and {loss['first_fp32']:.4g} in fp32"
    if last > FALLS * first:
        yield f"the loss fell only from {first:.4g} to {last:.4g}"
    if scaler.get("skipped_steps", 0) > MOST_SKIPPED:
        yield f"the gradient scaler skipped {scaler['skipped_steps']:.0f} steps and lowered the scale to {scaler['scale']:g}"


def summary(facts: Facts) -> str:
    speeds = [figure.value for figure in facts.once(figures)]
    losses = [run.values["loss"] for run in facts.measured.runs(WORKLOAD) if "loss" in run.values]
    return f"the loss falls from {losses[0]['first']:.2f} to {losses[0]['last']:.2f}, {max(speeds):.1f} ms per step"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DIVERGES,),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("pytorch",),
)
