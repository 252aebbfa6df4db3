"""Convolutions in NCHW: tensor cores want channels last, so the layout is changed around each convolution.

Problem: kernels that only move elements take a large part of the step.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    layers = [module for _ in range(4) for module in (torch.nn.Conv2d(64, 64, 3), torch.nn.BatchNorm2d(64), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to(place, torch.bfloat16)
    images = torch.randn(32 if place.type == "cuda" else 1, 64, 128, 128, device=place, dtype=torch.bfloat16)

    def step():
        model(images).mean().backward()

    run(step)
