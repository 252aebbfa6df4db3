"""PyTorch's ways to square a matrix: torch.square(a), a * a and a ** 2."""

from __future__ import annotations

from gpudoctor.worker.measuring import square
from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload


def run(bench: Bench) -> None:
    """For each: {"gb_per_s", "spread", "wrong_elements"}."""
    torch = square.cuda_torch()
    bench.step("context")
    matrix = square.ramp(torch, bench.gpu)
    ways = {"torch.square(a)": torch.square, "a * a": lambda a: a * a, "a ** 2": lambda a: a**2}
    for name, way in ways.items():
        with bench.section(name) as values:
            values.update(square.measured(torch, way, matrix))


WORKLOAD = Workload(run, runtime="torch", scope=ONCE, seconds=60, typical_seconds=2)
