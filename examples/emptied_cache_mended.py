"""Mended: the caching allocator keeps its blocks, and hands them out again without the driver.

Problem: emptied cache (emptied_cache.py).
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    values = torch.randn(2**24 if place.type == "cuda" else 2**20, device=place)

    def step():
        for _ in range(8):
            (values * 2 + 1).square_()

    run(step)
