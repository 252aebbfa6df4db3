"""Convolutions through cuDNN are right, with and without its search for the fastest algorithm.

What it means
Vision models and speech models convolve. cuDNN does that for every framework, with an algorithm that it guesses, or that it
finds by trying when the program asks for it (torch.backends.cudnn.benchmark).

How it is judged
A convolution as in the middle of a ResNet, in fp16 and fp32, both ways. A slice of each result is compared with one in fp64.
The speed counts against the same GPUs in this machine and the saved baseline; no datasheet has it. The libcudnn that was
really loaded is shown, with its version.

Known exceptions
Without the search the first call is fast and later ones may be slower, which is a choice. fp32 may use TF32 where torch allows
it, which it does by default for convolutions. Whether the loaded cuDNN fits torch is judged by cudnn.

References
https://docs.pytorch.org/docs/stable/backends.html#torch-backends-cudnn
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.measured import faults, rounding, slowness
from gpudoctor.model import Check, Figure, Finding, Skip

WORKLOAD = "convolution"
WAYS = ("fp16", "fp16 autotuned", "fp32", "fp32 autotuned")


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        for way in WAYS:
            result = run.values.get(way, {})
            if "wrong" in result:
                bad, during = rounding.wrong(result), result.get("during", {})
                yield Figure(f"convolution {way}", result["tflops"], "TFLOP/s", run.gpu, wrong=bad, during=during)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from slowness.judge(facts, facts.once(figures))
    if not facts.once(figures):
        raise Skip("no convolution came to its end", Skip.NO_ANSWER)


def summary(facts: Facts) -> str:
    runs = facts.measured.runs(WORKLOAD)
    loaded = {run.values["cudnn"]["loaded"] for run in runs if "cudnn" in run.values}
    fastest = max(figure.value for figure in facts.once(figures))
    return f"cuDNN {', '.join(sorted(loaded)) or 'of unknown version'}, up to {fastest:.0f} TFLOP/s, every result right"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=faults.ALL,
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
)
