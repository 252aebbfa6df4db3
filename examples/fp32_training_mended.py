"""Mended: autocast runs the matrix products in bf16 on the tensor cores; weights and optimizer stay FP32.

Problem: FP32 where bf16 would do (fp32_training.py).
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    size = 4096 if place.type == "cuda" else 256
    model = torch.nn.Sequential(*(torch.nn.Linear(size, size) for _ in range(4))).to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(size, size, device=place)

    def step():
        optimizer.zero_grad()
        with torch.autocast(place.type, dtype=torch.bfloat16):
            loss = model(batch).float().square().mean()
        loss.backward()
        optimizer.step()

    run(step)
