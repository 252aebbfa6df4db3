"""One rank of `gpudoctor fleet collective`: times all-reduce, all-gather and all-to-all, and verifies each result.

Started by torchrun; prints lines of JSON. The bus bandwidth counts as nccl-tests does:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

WARM_UP = 2
TURNS = 8  # passes over all groups that are measured in turn, if time allows; three at least
TURN_SECONDS = 0.4  # of one group in one pass
LEAST = 1 << 18  # numbers that a run moves
SHARE = 1 / 3  # of the time limit that the turns may take


def say(told: Dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def operations(
    dist: Any, torch: Any, world: int, rank: int, count: int, device: Any
) -> Dict[str, Tuple[Callable[[], Any], Any, float]]:
    """Name -> (what runs, what its result must be, the share of the bytes that crosses each link). count: numbers of a rank."""
    part = max(count // world, 1)
    mine = torch.full((part * world,), float(rank + 1), device=device)
    gathered = torch.empty(part * world, device=device)
    exchanged = torch.empty(part * world, device=device)
    each = torch.arange(1, world + 1, dtype=torch.float32, device=device).repeat_interleave(part)

    def all_reduce() -> Any:
        buffer = mine.clone()
        dist.all_reduce(buffer)
        return buffer

    def all_gather() -> Any:
        dist.all_gather_into_tensor(gathered, mine[:part])
        return gathered

    def all_to_all() -> Any:
        dist.all_to_all_single(exchanged, mine)
        return exchanged

    total = torch.full_like(mine, world * (world + 1) / 2)
    share = (world - 1) / world
    return {
        "all-reduce": (all_reduce, total, 2 * share),
        "all-gather": (all_gather, each, share),
        "all-to-all": (all_to_all, each, share),
    }


def timed(dist: Any, torch: Any, run: Callable[[], Any], seconds: float, device: Any) -> float:
    """Seconds of one run: the slowest rank's lower quartile, which what else runs on a node hardly changes."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(WARM_UP):
        run()
    wait()
    dist.barrier()
    start = time.perf_counter()
    run()
    wait()
    once = torch.tensor([time.perf_counter() - start], device=device)
    dist.all_reduce(once, op=dist.ReduceOp.MAX)
    taken = []
    for _ in range(max(3, min(50, int(seconds / max(float(once), 1e-6))))):
        start = time.perf_counter()
        run()
        wait()
        taken.append(time.perf_counter() - start)
    quartile = torch.tensor([sorted(taken)[len(taken) // 4]], device=device)
    dist.all_reduce(quartile, op=dist.ReduceOp.MAX)
    return float(quartile)


def in_turn(dist: Any, torch: Any, work: Dict[str, Any], device: Any) -> None:
    """Times all-reduce in groups of nodes, step after step and pass after pass; groups of one step run at the same time."""
    start = time.perf_counter()
    names: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(names, os.environ["GPUDOCTOR_NODE"])
    ranks = [[rank for rank, name in enumerate(names) if name in nodes] for nodes in work["turns"]["groups"]]
    groups = [dist.new_group(each) for each in ranks]
    me = dist.get_rank()
    count = work["bytes"][-1] // 4

    def run(number: int) -> float:
        """Seconds of one run: of the slowest rank, which all ranks of this group get."""
        begun = time.perf_counter()
        dist.all_reduce(buffer, group=groups[number])
        if device.type == "cuda":
            torch.cuda.synchronize()
        once = torch.tensor([time.perf_counter() - begun], device=device)
        dist.all_reduce(once, op=dist.ReduceOp.MAX, group=groups[number])
        return float(once)

    for turn in range(-2, TURNS):  # the first connects, and the second finds out how much a run may move
        slowest = 0.0
        buffer = torch.zeros(count if turn > -2 else min(count, LEAST), device=device)
        for step in work["turns"]["steps"]:
            dist.barrier()
            for number in (number for number in step if me in ranks[number]):
                taken = [run(number)]
                while turn >= 0 and sum(taken) < TURN_SECONDS and len(taken) < 50:
                    taken.append(run(number))
                slowest = max(slowest, taken[0])
                if turn >= 0 and me == ranks[number][0]:
                    size, seconds = len(ranks[number]), sorted(taken)[len(taken) // 4]
                    figure = 2 * (size - 1) / size * count * 4 / seconds / 1e9
                    say(
                        {"what": "all-reduce", "bytes": count * 4, "seconds": seconds, "gb_per_s": figure, "turn": [turn, number]}
                    )
        so_far = torch.tensor([slowest, time.perf_counter() - start], device=device)
        dist.all_reduce(so_far, op=dist.ReduceOp.MAX)
        if turn == -1:
            count = max(min(count, int(count * TURN_SECONDS / float(so_far[0]))), min(count, LEAST))
        elif turn >= 2 and float(so_far[1]) * (turn + 4) / (turn + 3) > work["seconds"] * SHARE:
            return


def main(work: Dict[str, Any]) -> None:
    import torch
    import torch.distributed as dist

    backend = work["backend"] or ("nccl" if torch.cuda.is_available() else "gloo")
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=work["seconds"]))
    rank, world = dist.get_rank(), dist.get_world_size()
    about = {"rank": rank, "world": world, "backend": backend, "torch": torch.__version__}
    say(about)
    if "turns" in work:
        in_turn(dist, torch, work, device)
    for size in () if "turns" in work else work["bytes"]:
        for name, (run, expected, share) in operations(dist, torch, world, rank, size // 4, device).items():
            wrong = not torch.equal(run(), expected)
            seconds = timed(dist, torch, run, work["each_seconds"], device)
            if rank == 0 or wrong:
                moved = expected.numel() * 4
                figure = {
                    "what": name,
                    "bytes": moved,
                    "seconds": seconds,
                    "gb_per_s": share * moved / seconds / 1e9,
                    "wrong": wrong,
                }
                say(figure)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
