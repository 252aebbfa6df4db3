"""Recorded inference: predictions are made with autograd on, which keeps every activation for a backward pass.

Problem: inference needs many times the memory, and the largest batch that fits is that much smaller.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(16))).to(place)
    rows = torch.randn(16384 if place.type == "cuda" else 64, 1024, device=place)

    def step():
        model(rows)

    run(step)
