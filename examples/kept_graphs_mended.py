"""Mended: detach() keeps the number and lets the graph go.

Problem: kept graphs (kept_graphs.py). retain_graph=True is needed only where backward runs twice over the same graph.
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
        loss.backward()
        model.zero_grad()
        log.append(loss.detach())

    run(step)
