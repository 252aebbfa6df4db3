"""Mended: cudnn.benchmark stays off, so a heuristic chooses the algorithm without a search.

Problem: cudnn.benchmark with changing shapes (cudnn_benchmark.py). Leave it on only for shapes that stay.
"""

import torch
from loop import device, run, work

if __name__ == "__main__":
    torch.backends.cudnn.benchmark = False
    place = device()
    model = torch.nn.Conv2d(32, 32, 3).to(place)
    width = 64
    train = work(place, 5)

    def step():
        global width
        width = 64 + (width - 63) % 448
        model(torch.randn(8, 32, 64, width, device=place))
        train()

    run(step)
