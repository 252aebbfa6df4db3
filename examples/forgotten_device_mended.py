"""Mended: model and batch are moved to the GPU once.

Problem: forgotten device (forgotten_device.py). Print next(model.parameters()).device at the start of a program.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    place = device()
    model = torch.nn.Linear(2048, 2048).to(place)
    batch = torch.randn(2048, 2048, device=place)

    @torch.inference_mode()
    def step():
        model(batch)

    run(step)
