"""One rank of a small distributed program that hangs on purpose, for hanging.py: python hanging_rank.py CASE BACKEND GO READY."""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = 3


def main(case: str, backend: str, go: str, ready: str) -> None:
    while not Path(go).exists():
        time.sleep(0.02)
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=datetime.timedelta(minutes=10))
    data = torch.ones(1 << 16, device=device)
    for _ in range(STEPS):
        train_step(data)
    CASES[case](rank, data, lambda: Path(f"{ready}.{rank}").touch())


def train_step(data: torch.Tensor) -> None:
    dist.all_reduce(data)
    data /= dist.get_world_size()
    data.sum().item()


def healthy(rank: int, data: torch.Tensor, reached: Callable[[], None]) -> None:
    reached()
    while True:
        train_step(data)
        sum(number * number for number in range(20_000))


def early(rank: int, data: torch.Tensor, reached: Callable[[], None]) -> None:
    if rank == 1:
        leave_early(reached)
    else:
        reached()
        train_step(data)


def leave_early(reached: Callable[[], None]) -> None:
    """The loop of this rank had fewer batches: it is done, and writes its results."""
    reached()
    time.sleep(3600)


def differ(rank: int, data: torch.Tensor, reached: Callable[[], None]) -> None:
    reached()
    if rank == 0:
        dist.all_reduce(data)
    else:
        dist.broadcast(data, src=0)
    data.sum().item()
    dist.barrier()


def stopped(rank: int, data: torch.Tensor, reached: Callable[[], None]) -> None:
    """hanging.py stops rank 1."""
    reached()
    while True:
        train_step(data)


class Slow(torch.utils.data.Dataset):  # type: ignore[misc]
    """One file of this data set is on a share that does not answer; here, a FIFO without a writer."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 2:
            with Path(self.path).open("rb") as file:
                file.read(1)
        return torch.ones(4)


def loader(rank: int, data: torch.Tensor, reached: Callable[[], None]) -> None:
    path = f"{sys.argv[3]}.fifo"
    if rank == 1:
        Path(path).unlink(missing_ok=True)
        os.mkfifo(path)
        batches = iter(torch.utils.data.DataLoader(Slow(path), batch_size=1, num_workers=1, prefetch_factor=1))
    for step in range(8):
        if rank == 1:
            if step == 2:
                reached()
            next(batches)
        elif step == 2:
            reached()
        train_step(data)


def kernel(rank: int, data: torch.Tensor, reached: Callable[[], None]) -> None:
    """Rank 1 waits for a kernel of its own that does not end, and so never enters the next collective."""
    if rank == 1:
        spin = endless()
        reached()
        spin()
        torch.cuda.synchronize()
    else:
        reached()
    train_step(data)


def endless() -> Callable[[], object]:
    """A kernel that waits for a flag which nobody sets. Compiled before, so that only the kernel itself hangs."""
    import triton
    import triton.language as tl

    @triton.jit
    def wait_for(flag):  # type: ignore[no-untyped-def]
        seen = 0
        while seen == 0:
            seen = tl.atomic_add(flag, 0)

    flag = torch.ones(1, dtype=torch.int32, device="cuda")
    wait_for[(1,)](flag)
    torch.cuda.synchronize()
    flag.zero_()
    torch.cuda.synchronize()
    return lambda: wait_for[(1,)](flag)


CASES = {"healthy": healthy, "early": early, "differ": differ, "stopped": stopped, "loader": loader, "kernel": kernel}

if __name__ == "__main__":
    main(*sys.argv[1:5])
