"""One core: the process may use one CPU only, so all its loader workers share it.

Problem: a launcher (taskset, Slurm without --cpus-per-task, a cgroup) pinned the program; more workers do not help.
"""

import os

import torch
from loop import device, run
from torch.utils.data import DataLoader, Dataset

ALLOWED = 1


class Heavy(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return torch.linalg.qr(torch.randn(64, 64)).Q


if __name__ == "__main__":
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:ALLOWED])
    place = device()
    batches = iter(DataLoader(Heavy(), batch_size=32, num_workers=min(8, len(cores))))

    def step():
        next(batches).to(place).sum()

    run(step, each=32, warm_up=16)
