"""Idle allocation: the program holds memory of the GPU while it waits for requests that rarely come.

Problem: half of the GPU is allocated and does nothing, and no other program can have it.
"""

import time

import torch
from loop import device, run

WAIT = 0.2
SHARE = 0.5

if __name__ == "__main__":
    place = device()
    free = torch.cuda.mem_get_info()[0] if place.type == "cuda" else 2**24
    working = torch.empty(int(free * SHARE), dtype=torch.uint8, device=place)

    def step():
        working[: 2**20].fill_(1)
        time.sleep(WAIT)

    run(step, reserved_gpu_mib=lambda: torch.cuda.memory_reserved() / 2**20 if place.type == "cuda" else 0.0)
