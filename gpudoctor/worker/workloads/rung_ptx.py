"""First rung of the toolchain: the driver's compiler turns PTX into machine code."""

from __future__ import annotations

from gpudoctor.worker.measuring import square
from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload


def run(bench: Bench) -> None:
    square.by_driver(bench, lambda driver: driver.module())


WORKLOAD = Workload(run, scope=ONCE, seconds=60, typical_seconds=2)
