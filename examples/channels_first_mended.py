"""Mended: model and images are stored as NHWC.

Problem: convolutions in NCHW (channels_first.py).
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    layers = [module for _ in range(4) for module in (torch.nn.Conv2d(64, 64, 3), torch.nn.BatchNorm2d(64), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to(place, torch.bfloat16, memory_format=torch.channels_last)
    images = torch.randn(32 if place.type == "cuda" else 1, 64, 128, 128, device=place, dtype=torch.bfloat16)
    images = images.to(memory_format=torch.channels_last)

    def step():
        model(images).mean().backward()

    run(step)
