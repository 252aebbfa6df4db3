"""Straggler: one rank has four times the work of the other, which waits for it in every all-reduce.

Problem: the step of all ranks takes as long as that of the slowest one. Long samples that were split by count do this.
"""

import torch
import torch.distributed as dist
from loop import backend, device, ranks, run

SAMPLES = [8, 32]


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
