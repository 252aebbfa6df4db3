"""Mended: the samples are split by length, so that each rank has the same amount of work.

Problem: straggler (straggler.py).
"""

import torch
import torch.distributed as dist
from loop import backend, device, ranks, run

SAMPLES = [20, 20]


def main():
    dist.init_process_group(backend())
    place = device()
    size = 1024 if place.type == "cuda" else 128
    weights = torch.randn(size, size, device=place)
    samples = torch.randn(SAMPLES[dist.get_rank()], size, size, device=place)

    def step():
        gradient = sum(sample @ weights for sample in samples)
        dist.all_reduce(gradient)

    run(step, each=sum(SAMPLES))
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks(main)
