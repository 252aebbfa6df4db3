"""Default stream: two independent parts of the work wait for each other, because both use the default stream.

Problem: each kernel fills a few SMs only, and the others are idle.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    parts = [torch.randn(20_000, 64, device=place) for _ in range(8)]

    def step():
        for part in parts:
            part.cumsum(0)

    run(step)
