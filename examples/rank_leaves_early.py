"""Hang: one rank has fewer batches and leaves the loop early; the other waits for it in the next all-reduce.

Problem: nothing moves, although the GPU reads 100 % with NCCL. Here the group's timeout is --seconds, at least 1.
"""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from loop import backend, device, ranks, seconds

BATCHES = [20, 19]


def main():
    patience = max(seconds(), 1)
    dist.init_process_group(backend(), timeout=timedelta(seconds=patience))
    place = device()
    value = torch.ones(1024, device=place)
    for _ in range(BATCHES[dist.get_rank()]):
        dist.all_reduce(value)
        value.div_(dist.get_world_size())
    print(f"rank {dist.get_rank()} evaluates: {value.mean().item()}", flush=True)
    time.sleep(2 * patience * dist.get_rank())


if __name__ == "__main__":
    ranks(main)
