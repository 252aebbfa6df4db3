"""Forgotten device: model and data were never moved, so the whole program runs on the CPU without a word.

Problem: the GPU is idle at 100 % CPU load, and nothing fails.
"""

import torch
from loop import run

if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    model = torch.nn.Linear(2048, 2048)
    batch = torch.randn(2048, 2048)

    @torch.inference_mode()
    def step():
        model(batch)

    run(step)
