"""Mended: the norm stays on the GPU, and the host launches far ahead.

Problem: a synchronisation in every step (sync_each_step.py). Read figures every some hundred steps, or at the end.
"""

import torch
from loop import device, run

ITERATIONS = 64

if __name__ == "__main__":
    place = device()
    size = 8192 if place.type == "cuda" else 256
    matrix = torch.randn(size, size, device=place)
    vector = torch.randn(size, device=place)

    def step():
        global vector
        for _ in range(ITERATIONS):
            vector = matrix @ vector
            vector = vector / vector.norm()

    run(step, each=ITERATIONS)
