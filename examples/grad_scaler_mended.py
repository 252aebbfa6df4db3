"""Mended: bf16 has the range of FP32 and needs no scaler, and the loss is computed in FP32.

Problem: a gradient scaler that never settles (grad_scaler.py).
"""

import time

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    model = torch.nn.Linear(512, 512).to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batch = 100 * torch.randn(512, 512, device=place)
    applied, started = [], time.monotonic()
    optimizer.register_step_post_hook(lambda *_: applied.append(1))

    def step():
        optimizer.zero_grad()
        with torch.autocast(place.type, dtype=torch.bfloat16):
            loss = model(batch).float().square().sum()
        loss.backward()
        optimizer.step()

    run(step, applied_per_second=lambda: len(applied) / (time.monotonic() - started))
