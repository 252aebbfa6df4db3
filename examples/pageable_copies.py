"""Pageable copies: batches go to the GPU from ordinary memory, through a small buffer of the driver, while the host waits.

Problem: non_blocking=True has no effect on pageable memory, so the copy neither overlaps nor reaches the speed of the link.
"""

import torch
from loop import device, run

LENGTH = 2**18 if torch.cuda.is_available() else 2**10

if __name__ == "__main__":
    place = device()
    batches = [torch.randn(64, LENGTH) for _ in range(4)]
    weights = torch.randn(LENGTH, 64, device=place)
    turn = 0

    def step():
        global turn
        turn += 1
        batch = batches[turn % len(batches)].to(place, non_blocking=True)
        batch @ weights

    run(step)
