"""Parts of the machine that a command can do without: a path between GPUs, or one of several GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.judging.experiments.suspect import GPU, PATH_OF_GPUS, PATHS_OF_GPUS, Surroundings, Suspect
from gpudoctor.judging.experiments.verdict import VISIBLE
from gpudoctor.model import Report

OF_NCCL = re.compile(r"\bNCCL\b|ncclComm|ProcessGroupNCCL|all_?reduce", re.IGNORECASE)
OF_GPUS = re.compile(r"\bCUDA\b|cuda(?:Error|Runtime)|CUDNN_STATUS|CUBLAS_STATUS|illegal memory access", re.IGNORECASE)
MOST_GPUS = 8


def parts(surroundings: Surroundings, words: str, report: Report) -> tuple[Suspect, ...]:
    """What a failure of GPUs can be about, if no setting is: paths first, then the GPUs, those with a finding first."""
    if not 1 < len(surroundings.gpus) <= MOST_GPUS:
        return ()
    return (*_paths(surroundings, words), *_gpus(surroundings, words, report))


def _paths(surroundings: Surroundings, words: str) -> Iterator[Suspect]:
    if OF_NCCL.search(words):
        for name in PATHS_OF_GPUS:
            if name not in surroundings.variables:
                yield Suspect(PATH_OF_GPUS, name, "1", "the output is about NCCL")


def _gpus(surroundings: Surroundings, words: str, report: Report) -> list[Suspect]:
    if not (OF_NCCL.search(words) or OF_GPUS.search(words)):
        return []
    blamed = {str(entry.gpu) for entry in report.diagnosis if entry.gpu is not None}
    ordered = sorted(surroundings.gpus, key=lambda gpu: gpu not in blamed)
    return [Suspect(GPU, VISIBLE, gpu, "the output is about GPUs") for gpu in ordered]
