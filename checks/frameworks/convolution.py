"""Convolutions through cuDNN are right, with and without its search for the fastest algorithm.

What it means
Vision and speech models use convolutions, which cuDNN computes for every framework. cuDNN guesses the algorithm, or searches for
the fastest one if the program requests it (torch.backends.cudnn.benchmark).

How it is judged
A convolution as in the middle of a ResNet runs in fp16 and fp32, with and without the search. A slice of each result is compared
with one computed in fp64. The speed is compared with that of the same GPUs in this machine and with the saved baseline;
datasheets do not state it. The summary shows the version of the libcudnn that was loaded.

Known exceptions
Without the search, the first call is fast and later calls may be slower, which is a valid choice. fp32 may use TF32 if torch
allows it, which is torch's default for convolutions. Whether the loaded cuDNN fits torch is judged by cudnn.

References
https://docs.pytorch.org/docs/stable/backends.html#torch-backends-cudnn
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

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
        raise Skip("no convolution finished", Skip.NO_ANSWER)


def summary(facts: Facts) -> str:
    runs = facts.measured.runs(WORKLOAD)
    loaded = {cudnn_words(run.values["cudnn"]) for run in runs if "cudnn" in run.values}
    fastest = max(figure.value for figure in facts.once(figures))
    return f"cuDNN {', '.join(sorted(loaded)) or 'of unknown version'}, up to {fastest:.0f} TFLOP/s, all results correct"


def cudnn_words(cudnn: Mapping[str, Any]) -> str:
    """The loaded version, the one that torch was compiled with if that differs, and the folder if the library is not torch's."""
    loaded, compiled = cudnn["loaded"], cudnn.get("compiled_for")
    folders = {posixpath.dirname(path) for path in cudnn.get("libraries", ())}
    foreign = sorted(folder for folder in folders if "/nvidia/cudnn" not in folder and "/torch/" not in folder)
    built = f" (PyTorch was compiled with {compiled})" if compiled and compiled != loaded else ""
    return f"{loaded}{built}" + (f" from {', '.join(foreign)}" if foreign else "")


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=faults.ALL,
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("performance", "pytorch"),
)
