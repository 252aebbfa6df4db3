"""Mended: fused=True updates all tensors in a few kernels.

Problem: unfused optimizer (unfused_optimizer.py).
"""

import torch
from loop import device, run, work

if __name__ == "__main__":
    place = device()
    train = work(place, 5)
    parameters = [torch.nn.Parameter(torch.randn(256, 64, device=place)) for _ in range(300)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.Adam(parameters, fused=True)

    def step():
        train()
        optimizer.step()

    run(step)
