"""FP32 where bf16 would do: a training step without autocast, and TF32 left off, as is torch's default.

Problem: the tensor cores are idle; the ordinary units have a tenth of their rate or less.
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
        model(batch).square().mean().backward()
        optimizer.step()

    run(step)
