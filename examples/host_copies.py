"""Unneeded host copies: the weights lie on the host and are copied to the GPU in each call; the result comes back each time.

Problem: data goes back and forth over PCIe although the next step needs it where it was.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    size = 4096 if place.type == "cuda" else 256
    weights = torch.randn(size, size, dtype=torch.bfloat16)
    state = torch.randn(size, size, dtype=torch.bfloat16)

    def step():
        global state
        result = state.to(place) @ weights.to(place)
        state = torch.nn.functional.normalize(result).cpu()

    run(step)
