"""Mended: DistributedDataParallel reduces gradients in buckets, while the backward pass still computes others.

Problem: communication that overlaps nothing (exposed_communication.py).
"""

from functools import partial

import torch
import torch.distributed as dist
from loop import backend, device, ranks, run


def step(model, batch):
    model.zero_grad()
    model(batch).square().mean().backward()


def main():
    dist.init_process_group(backend())
    place = device()
    width = 1024 if place.type == "cuda" else 64
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(32))).to(place)
    model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    batch = torch.randn(4 * width, width, device=place)
    run(partial(step, model, batch))
    del model  # before its process group, whose end with gloo could wait for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks(main)
