"""Fifth rung of the toolchain: Triton compiles a kernel written in Python."""

from __future__ import annotations

import importlib.util
from typing import Any

from gpudoctor.worker.measuring import square
from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload
from gpudoctor.worker.reply import Skip

BLOCK = 1024
OLDEST = (7, 0)  # compute capability
tl: Any = None  # Triton's compiler looks for its language in the globals of the kernel's file


def run(bench: Bench) -> None:
    """In addition to the results in square.py: compiler {"version"}."""
    if importlib.util.find_spec("triton") is None:
        raise Skip("Triton is not installed, and torch.compile needs it too", Skip.NOT_INSTALLED)

    def build(torch: Any) -> square.Square:
        need(torch, OLDEST)
        import triton

        bench.keep("compiler", version=str(triton.__version__))
        return squared(torch)

    square.by_torch(bench, build)


def need(torch: Any, capability: Any) -> None:
    found = torch.cuda.get_device_capability()
    if found < capability:
        raise Skip("Triton needs compute capability %d.%d, this GPU has %d.%d" % (*capability, *found), Skip.UNSUPPORTED)


def squared(torch: Any) -> square.Square:
    global tl
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def kernel(to, matrix, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * block + tl.arange(0, block)
        values = tl.load(matrix + at, mask=at < count)
        tl.store(to + at, values * values, mask=at < count)

    def call(matrix: Any) -> Any:
        to = torch.empty_like(matrix)
        kernel[(triton.cdiv(matrix.numel(), BLOCK),)](to, matrix, matrix.numel(), block=BLOCK)
        return to

    return call


WORKLOAD = Workload(run, runtime="torch", scope=ONCE, seconds=120, typical_seconds=8)
