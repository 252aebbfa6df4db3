"""Mended: the process may use every CPU that it was given.

Problem: one core (one_core.py). Ask the launcher for cores: srun --cpus-per-task, taskset, the container's --cpuset-cpus.
"""

import os

import torch
from loop import device, run, work
from torch.utils.data import DataLoader, Dataset

ALLOWED = None


class Heavy(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return torch.linalg.qr(torch.randn(64, 64)).Q


if __name__ == "__main__":
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:ALLOWED])
    place = device()
    train = work(place, 10)
    workers, pin = min(8, len(cores)), place.type == "cuda"
    batches = iter(DataLoader(Heavy(), batch_size=128, num_workers=workers, pin_memory=pin))

    def step():
        next(batches).to(place, non_blocking=True)
        train()

    run(step, each=128, warm_up=16)
    del batches  # ends the loader and its workers before the interpreter ends
