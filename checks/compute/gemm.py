"""Matrix products are correct, and as fast in every precision as each GPU's datasheet implies.

What it means
Nearly all of the work of training and serving a model is matrix products (GEMM). Their speed is what a GPU is bought for.

How it is judged
Measures products of large random matrices through torch (cuBLAS) in fp64, fp32 without TF32, TF32, fp16, bf16 and fp8
(e4m3), as far as GPU and torch support them; at level full also int8, e4m3 with e5m2, nvfp4 and mxfp4. Timing follows
triton's do_bench, after half a second of warm-up, because at their power limit GPUs are faster at first. Each result is
compared with the datasheet's dense rate times the share that healthy GPUs reach, with the same GPUs in this machine, and with
the saved baseline. A sample of each result is compared with a product in higher precision. Products of whole numbers must be
exact.

Known exceptions
TF32 and fp32 are set for the measurement, so the settings of the user's program do not matter. A GPU that is not in the
tables, or a MIG slice, is judged by its own number of multiprocessors and its clock. The data matters: with zeros the power
limit is reached later, and the figures are higher. If little memory is free, the matrices are smaller and only compared with
others of their size, as no datasheet gives their speed. All scales of fp8 and fp4 are 1. What torch refuses is not measured.
NVIDIA_TF32_OVERRIDE=1 rounds fp32 to TF32, so fp32 cannot be measured.

References
https://github.com/stas00/ml-engineering/blob/master/compute/accelerator/README.md
https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.measured import Run
from gpudoctor.judging.measured import expect, faults, rounding, slowness
from gpudoctor.judging.measured.slowness import Slow
from gpudoctor.model import Cause, Check, Figure, Finding, Skip

WORKLOAD = "gemm"
# Each with its rate in the datasheet.
PRECISIONS = {name: name for name in ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")}
PRECISIONS |= {"fp8 e5m2": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"}
TF32 = "GEMM tf32"
OVERRIDE = "NVIDIA_TF32_OVERRIDE"
SIZE = 8192  # of the matrices, if memory and time allow
LEAST_MS = 3.0  # of a product that is smaller only because the next size would take too long


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        assert run.gpu is not None
        for precision, rate in PRECISIONS.items():
            result = run.values.get(precision, {})
            if "wrong" in result and not (precision == "fp32" and is_tf32(facts, run)):
                small = is_small(result)
                expected = expect.NOTHING if small else expect.tflops(facts, run.gpu, rate)
                bad, during = rounding.wrong(result), result.get("during", {})
                what = f"GEMM {precision}" + (f" of size {result['size']}" if small else "")
                yield Figure(
                    what,
                    result["tflops"],
                    "TOP/s" if precision == "int8" else "TFLOP/s",
                    run.gpu,
                    expected.value,
                    expected.rule,
                    wrong=bad,
                    during=during,
                    unlisted=expected.unlisted,
                )


def is_small(result: Mapping[str, Any]) -> bool:
    """Whether memory was too small for matrices that keep the GPU busy; a limit on time never makes them that small."""
    return bool(result["size"] < SIZE and result["milliseconds"] < LEAST_MS)


def is_tf32(facts: Facts, run: Run) -> bool:
    """Whether a variable makes fp32 products use TF32, and the fp32 result is within TF32's error."""
    fp32, tf32 = run.values["fp32"], run.values.get("tf32", {})
    if facts.environment.get(OVERRIDE) in (None, "", "0") or fp32["relative_error"] is None:
        return False
    return bool(fp32["wrong"] and fp32["relative_error"] <= tf32.get("allowed_error", 0))


def judge(facts: Facts) -> Iterator[Finding]:
    yield from slowness.judge(facts, facts.once(figures), (Cause(faults.SLOW, tf32_is_off),))
    if not facts.once(figures):
        raise Skip("no matrix product finished", Skip.NO_ANSWER)


def tf32_is_off(slow: Slow) -> Finding | None:
    """Only TF32 is slow, and a variable disables it."""
    if {shortfall.figure.what for shortfall in slow.all} != {TF32}:
        return None
    if slow.facts.environment.get(OVERRIDE) != "0":
        return None
    return slow.found(faults.SLOW, "NVIDIA_TF32_OVERRIDE=0 is set", because="tf32-disabled")


def summary(facts: Facts) -> str:
    best: dict[str, float] = {}
    for figure in facts.once(figures):
        name = figure.what.removeprefix("GEMM ").partition(" of size")[0]
        best[name] = min(best.get(name, figure.value), figure.value)
    words = ", ".join(f"{name} {value:.0f}" for name, value in best.items())
    return f"TFLOP/s: {words}; all results correct{other_cublas(facts)}"


def other_cublas(facts: Facts) -> str:
    """The folders of a loaded cuBLAS that is not from PyTorch's wheels."""
    paths = {path for run in facts.measured.runs(WORKLOAD) for path in run.values.get("libraries", {}).get("cublas", ())}
    folders = sorted({posixpath.dirname(path) for path in paths if "/nvidia/" not in path and "/torch/" not in path})
    return f", with cuBLAS from {', '.join(folders)}" if folders else ""


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=faults.ALL,
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("performance",),
)
