"""What all examples share: run a step for some seconds, say how fast it was and what it held, and start two ranks."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

RANKS = 2
WARM_UP = 3


def seconds() -> float:
    """What --seconds says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the program works after its warm-up")
    return float(parser.parse_args().seconds)


def device() -> torch.device:
    """The GPU of this process, else the CPU, on which the examples only show that they run."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


def run(step: Callable[[], object], each: int = 1, warm_up: int = WARM_UP, **figures: Callable[[], float]) -> None:
    """Call step until the time is over, and print the figures. each: units of work of a step."""
    until = seconds()
    for _ in range(warm_up if torch.cuda.is_available() else 0):  # figures of a CPU are for nobody
        step()
    most = _agreed(step, until) if dist.is_initialized() else None
    synchronize()
    held, resident, started, steps = gpu_mib(), host_mib(), time.monotonic(), 0
    while steps < most if most else time.monotonic() - started < until:
        step()
        steps += 1
    synchronize()
    rate = steps / (time.monotonic() - started)
    shown = {
        "per_second": rate * each,
        "gpu_mib_per_step": (gpu_mib() - held) / steps,
        "host_mib_per_step": (host_mib() - resident) / steps,
        "peak_gpu_mib": torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_initialized() else 0.0,
        **{name: figure() for name, figure in figures.items()},
    }
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps({name: float(f"{value:.4g}") for name, value in shown.items()}), flush=True)


def _agreed(step: Callable[[], object], until: float) -> int:
    """As many steps as rank 0 expects to take until then: ranks that stop by their own clocks would wait for each other."""
    if not torch.cuda.is_available():
        return 1
    synchronize()
    started = time.monotonic()
    step()
    synchronize()
    most = torch.tensor(max(1, round(until / (time.monotonic() - started))), device=device())
    dist.broadcast(most, 0)
    return int(most)


def work(place: torch.device, milliseconds: float) -> Callable[[], None]:
    """What the GPU does with a batch: products in BF16, which take an H100 about so long."""
    size = 8192 if place.type == "cuda" else 16
    left = torch.randn(size, size, device=place, dtype=torch.bfloat16)
    product = torch.empty_like(left)

    def compute() -> None:
        for _ in range(max(1, round(milliseconds / 1.4))):
            torch.mm(left, left, out=product)

    return compute


def synchronize() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def gpu_mib() -> float:
    return torch.cuda.memory_allocated() / 2**20 if torch.cuda.is_initialized() else 0.0


def host_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def ranks(main: Callable[[], None]) -> None:
    """Call main in each rank: in this process under torchrun, else in two processes of our own."""
    if "RANK" in os.environ:
        main()
        return
    with socket.socket() as free:
        free.bind(("localhost", 0))
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(free.getsockname()[1]), WORLD_SIZE=str(RANKS))
    torch.multiprocessing.start_processes(_rank, (main,), nprocs=RANKS, start_method="fork")  # CUDA is not in use yet


def end_with_parent() -> None:
    """However the process that started this one ends, and also while this one hangs in a call of CUDA."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _rank(rank: int, main: Callable[[], None]) -> None:
    end_with_parent()
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    main()


def backend() -> str:
    """NCCL where every rank has a GPU of its own, else gloo."""
    return "nccl" if torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"]) else "gloo"
