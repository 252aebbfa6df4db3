"""Many tiny copies: a record of 64 values is copied to the GPU one value group at a time.

Problem: each copy costs about the same few microseconds, however small it is.
"""

import torch
from loop import device, run, work

if __name__ == "__main__":
    place = device()
    train = work(place, 5)
    records = [torch.randn(64) for _ in range(512)]

    def step():
        batch = torch.stack([record.to(place) for record in records])
        batch.square().sum()
        train()

    run(step)
