"""Last rung of the toolchain: torch.compile turns a PyTorch function into a Triton kernel."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from gpudoctor.worker.measuring import square
from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload
from gpudoctor.worker.reply import Skip
from gpudoctor.worker.workloads.rung_triton import OLDEST, need


class NothingCompiled(Exception):
    """torch.compile returned a result without generating a kernel."""


def run(bench: Bench) -> None:
    if importlib.util.find_spec("triton") is None:
        raise Skip("Triton is not installed, which torch.compile needs", Skip.NOT_INSTALLED)
    square.by_torch(bench, build)


def build(torch: Any) -> square.Square:
    need(torch, OLDEST)
    compiled = torch.compile(squared)

    def call(matrix: Any) -> Any:
        result = compiled(matrix)
        folder = os.environ["TORCHINDUCTOR_CACHE_DIR"]
        if not (os.path.isdir(folder) and os.listdir(folder)):
            raise NothingCompiled("torch.compile ran the function without compiling it")
        return result

    return call


def squared(matrix: Any) -> Any:
    return matrix * matrix


WORKLOAD = Workload(run, runtime="torch", scope=ONCE, seconds=240, typical_seconds=20)
