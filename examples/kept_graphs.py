"""Kept graphs: losses are collected for a log with their autograd graph, and with it all activations.

Problem: GPU memory grows by the activations of a step in every step, until it is exhausted.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).to(place)
    batch = torch.randn(64, 256, device=place)
    log = []

    def step():
        loss = model(batch).square().mean()
        loss.backward(retain_graph=True)
        model.zero_grad()
        log.append(loss)

    run(step)
