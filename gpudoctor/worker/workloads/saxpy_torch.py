"""y = 2 x + y by PyTorch's own kernel and by one that Triton compiles, as CuPy, Numba and the driver run it elsewhere."""

from __future__ import annotations

import importlib.util
from typing import Any, Callable, Dict

from gpudoctor.worker.measuring import clock, square
from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload, summary
from gpudoctor.worker.workloads.rung_triton import OLDEST

ELEMENTS = 1 << 26  # of each vector, if it fits
SHARE_OF_FREE = 16
COLUMNS = 1024  # x is 0, 1 ... 1023 again and again, so that the sum of all rounds is exact
REPEATS, WARM_UP = 15, 2
BLOCK = 1024
A = 2
tl: Any = None  # Triton's compiler looks for its language in the globals of the kernel's file

Saxpy = Callable[[Any, Any], Any]


def run(bench: Bench) -> None:
    """For "torch" and, if it is installed, "triton": {"gb_per_s", "spread", "cold_seconds", "wrong_elements"}."""
    torch = square.cuda_torch()
    bench.step("context")
    torch.cuda.set_device(bench.gpu)
    elements = min(ELEMENTS, torch.cuda.mem_get_info()[0] // SHARE_OF_FREE) // COLUMNS * COLUMNS
    x = torch.arange(COLUMNS, dtype=torch.float32, device="cuda").repeat(elements // COLUMNS)
    with bench.section("torch") as values:
        values.update(measured(torch, lambda y, x: y.add_(x, alpha=A), x))
    if importlib.util.find_spec("triton") and torch.cuda.get_device_capability() >= OLDEST:
        square.prepare(bench)
        with bench.section("triton") as values:
            values.update(measured(torch, by_triton(), x))


def measured(torch: Any, saxpy: Saxpy, x: Any) -> Dict[str, Any]:
    y = torch.zeros_like(x)
    torch.cuda.synchronize()
    began = clock.now()
    saxpy(y, x)
    torch.cuda.synchronize()
    cold = clock.now() - began
    for _ in range(WARM_UP):
        saxpy(y, x)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        saxpy(y, x)
        mark.record()
    torch.cuda.synchronize()
    times = [marks[number].elapsed_time(marks[number + 1]) for number in range(REPEATS)]
    found = summary([3 * x.numel() * x.element_size() / each / 1e6 for each in times])
    wrong = int((y != A * (1 + WARM_UP + REPEATS) * x).sum().item())
    return {"gb_per_s": found["median"], "spread": found["spread"], "cold_seconds": cold, "wrong_elements": wrong}


def by_triton() -> Saxpy:
    global tl
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def kernel(y, x, a, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * block + tl.arange(0, block)
        inside = at < count
        tl.store(y + at, a * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)

    return lambda y, x: kernel[(triton.cdiv(x.numel(), BLOCK),)](y, x, float(A), x.numel(), block=BLOCK)


WORKLOAD = Workload(run, runtime="torch", scope=ONCE, seconds=120, typical_seconds=5)
