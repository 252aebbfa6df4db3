"""Mended: inference_mode() records nothing, so an activation is freed as soon as the next layer is done.

Problem: recorded inference (recorded_inference.py).
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(16))).to(place)
    rows = torch.randn(16384 if place.type == "cuda" else 64, 1024, device=place)

    @torch.inference_mode()
    def step():
        model(rows)

    run(step)
