"""A synchronisation in every step: the loss is read with .item(), so the host waits for the GPU and then the GPU for the host.

Problem: the queue of launches runs empty in each step, and small kernels are paid with their full launch cost.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    batch = torch.randn(1024, 1024, device=place)
    total = 0.0

    def step():
        global total
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            if parameter.grad.norm().item() > 1.0:
                parameter.grad.mul_(0.5)
        optimizer.step()
        total += loss.item()

    run(step)
