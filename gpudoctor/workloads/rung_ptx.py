"""First rung of the toolchain: the driver's own compiler makes machine code of PTX.

This file travels (standard library only, Python 3.8).
"""

from __future__ import annotations

from gpudoctor.measuring import square
from gpudoctor.measuring.bench import ONCE, Bench, Workload


def run(bench: Bench) -> None:
    square.by_driver(bench, lambda driver: driver.module())


WORKLOAD = Workload(run, scope=ONCE, seconds=60, typical_seconds=2)
