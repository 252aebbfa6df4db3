"""A synchronisation in every step: the norm is read with .item(), so the host waits for the GPU and then the GPU for the host.

Problem: the queue of launches runs empty in each step, and small kernels are paid with their full launch cost.
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
            vector = vector / vector.norm().item()

    run(step, each=ITERATIONS)
