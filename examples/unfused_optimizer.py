"""Unfused optimizer: Adam goes through hundreds of small tensors one by one, with a dozen kernels for each.

Problem: the optimizer is bound by launches; the GPU is mostly idle during its step.
"""

import torch
from loop import device, run, work

if __name__ == "__main__":
    place = device()
    train = work(place, 5)
    parameters = [torch.nn.Parameter(torch.randn(256, 64, device=place)) for _ in range(300)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.Adam(parameters, foreach=False)

    def step():
        train()
        optimizer.step()

    run(step)
