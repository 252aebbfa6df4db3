"""Mended: weights and state are moved to the GPU once and stay there.

Problem: unneeded host copies (host_copies.py). Bring results back when they are needed on the host, in bulk.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    size = 4096 if place.type == "cuda" else 256
    weights = torch.randn(size, size, dtype=torch.bfloat16).to(place)
    state = torch.randn(size, size, dtype=torch.bfloat16).to(place)

    def step():
        global state
        result = state @ weights
        state = torch.nn.functional.normalize(result)

    run(step)
    state.cpu()
