"""Pageable copies: batches go to the GPU from ordinary memory, through a small buffer of the driver, while the host waits.

Problem: non_blocking=True has no effect on pageable memory, so the copy neither overlaps nor reaches the speed of the link.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    batches = [torch.randn(64, 2**18) for _ in range(4)]
    weights = torch.randn(2**18, 64, device=place)
    turn = 0

    def step():
        global turn
        turn += 1
        batch = batches[turn % len(batches)].to(place, non_blocking=True)
        batch @ weights

    run(step)
