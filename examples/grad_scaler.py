"""A gradient scaler that never settles: a softmax written by hand overflows, whatever the scale is.

Problem: every gradient is NaN, so each step is skipped and the scale is halved until it is 0, while the program looks busy.
"""

import time

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    size = 8192 if place.type == "cuda" else 64
    model = torch.nn.Linear(size, size).to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, fused=True)
    scaler = torch.amp.GradScaler(place.type)
    batch = 100 * torch.randn(size, size, device=place)
    applied, started = [], time.monotonic()
    optimizer.register_step_post_hook(lambda *_: applied.append(1))

    def step():
        optimizer.zero_grad()
        with torch.autocast(place.type, dtype=torch.float16):
            weights = model(batch).exp()
            loss = (weights / weights.sum(-1, keepdim=True)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    run(step, applied_per_second=lambda: len(applied) / (time.monotonic() - started))
