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
    weights = torch.randn(1024, 1024, device=place)
    samples = torch.randn(SAMPLES[dist.get_rank()], 1024, 1024, device=place)

    def step():
        gradient = sum(sample @ weights for sample in samples)
        dist.all_reduce(gradient)

    run(step, each=sum(SAMPLES))
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks(main)
