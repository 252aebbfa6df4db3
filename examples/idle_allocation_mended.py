"""Mended: memory is taken for a request, and given back to the driver before the wait.

Problem: idle allocation (idle_allocation.py).
"""

import time

import torch
from loop import device, run

WAIT = 0.2
SHARE = 0.5

if __name__ == "__main__":
    place = device()
    free = torch.cuda.mem_get_info()[0] if place.type == "cuda" else 2**24

    def step():
        working = torch.empty(int(free * SHARE), dtype=torch.uint8, device=place)
        working[: 2**20].fill_(1)
        del working
        torch.cuda.empty_cache()
        time.sleep(WAIT)

    run(step, reserved_gpu_mib=lambda: torch.cuda.memory_reserved() / 2**20 if place.type == "cuda" else 0.0)
