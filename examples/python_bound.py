"""Host-bound: Python prepares every element by itself, and holds the interpreter's lock while it does.

Problem: one core is at 100 %, the GPU waits, and threads would not help.
"""

import random

import torch
from loop import device, run, work

SIZE = 2**14

if __name__ == "__main__":
    place = device()
    train = work(place, 5)

    def step():
        noise = [min(max(random.gauss(0.0, 1.0), -2.0), 2.0) for _ in range(SIZE)]
        torch.tensor(noise, device=place).square().sum()
        train()

    run(step, each=SIZE)
