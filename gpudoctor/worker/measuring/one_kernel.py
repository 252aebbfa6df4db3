"""A program with one kernel and no framework, to be profiled: `python -m gpudoctor.worker.measuring.one_kernel 0`."""

from __future__ import annotations

import ctypes
import sys
from array import array
from typing import List

from gpudoctor.worker.measuring.driver import Driver

FLOATS = 1 << 24
NAME = "ramp"


def command(gpu: int) -> List[str]:
    """The command line for one GPU (CUDA's number)."""
    return [sys.executable, "-m", "gpudoctor.worker.measuring.one_kernel", str(gpu)]


def main(gpu: int) -> int:
    driver = Driver(gpu)
    with driver.buffer(4 * FLOATS) as to:
        driver.module()(NAME, to, ctypes.c_uint64(FLOATS))
        found = driver.bytes_from(to, 4096)
    return int(found != array("f", range(1024)).tobytes())


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
