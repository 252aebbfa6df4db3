"""Third rung of the toolchain: nvcc and its host compiler compile CUDA C++ to machine code."""

from __future__ import annotations

import os
import tempfile

from gpudoctor.worker.measuring import programs, square
from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload
from gpudoctor.worker.reply import Skip

SECONDS = 60


class CompilerError(Exception):
    """A compiler failed; the message is its output."""


def run(bench: Bench) -> None:
    """In addition to the results in square.py: compiler {"path"}."""
    nvcc = programs.nvcc()
    if nvcc is None:
        raise Skip("nvcc is not installed: not found on PATH, in a toolkit or in a wheel", Skip.NOT_INSTALLED)
    bench.keep("compiler", path=nvcc)
    square.by_driver(bench, lambda driver: driver.module(cubin(nvcc, square.architecture(driver), bench.folder)))


def cubin(nvcc: str, architecture: str, folder: str) -> str:
    """Compiles the kernel; returns the path of its machine code."""
    folder = tempfile.mkdtemp(prefix="nvcc-", dir=folder)
    source, result = os.path.join(folder, "square.cu"), os.path.join(folder, "square.cubin")
    with open(source, "w") as file:
        file.write(square.SOURCE)
    ran = programs.run(
        [nvcc, "-cubin", "-arch=sm_" + architecture, "-o", result, source],
        SECONDS,
        folder,
        TMPDIR=os.environ.get("TMPDIR", folder),
    )
    if ran.code is None:
        raise CompilerError("nvcc did not finish within %d s: %s" % (SECONDS, ran.output))
    if ran.code:
        raise CompilerError("nvcc ended with %d: %s" % (ran.code, ran.output))
    return result


WORKLOAD = Workload(run, scope=ONCE, seconds=150, typical_seconds=3)
