"""What each rank of a torchrun session does: all-reduces, then training steps. workloads/distributed.py has it run as a script.

Rank 0 times, every rank verifies. No rank touches a GPU before the workload has its turn.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import glob
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Dict

if TYPE_CHECKING:
    from gpudoctor.worker.measuring.rank import Rank

POLL_SECONDS = 0.02
READY = ".rank%d"  # beside the workload's file: this rank has imported all that it needs
COLLECTIVE_SECONDS = 40  # after which torch gives a collective up
FAILURE_CHARACTERS = 500


def main(job: Dict[str, Any]) -> None:
    """job: {"file", "gpus", "level", "backend"}; "file" is the workload's, with ".failures" what ranks died of."""
    faulthandler.enable()
    number = int(os.environ["RANK"])
    try:
        work(job, number)
    except Exception as failure:
        words = " ".join(str(failure).split())[:FAILURE_CHARACTERS]
        with open(job["file"] + ".failures", "a", encoding="utf-8") as file:
            file.write("rank %d: %s: %s\n" % (number, type(failure).__name__, words))
        raise


def work(job: Dict[str, Any], number: int) -> None:
    import torch
    import torch.distributed

    from gpudoctor.worker.measuring import all_reduce, data_parallel

    cuda = job["backend"] == "nccl"
    if cuda and not torch.distributed.is_nccl_available():
        with open(job["file"] + ".skip", "w", encoding="utf-8") as file:
            file.write("this build of torch has no NCCL")
        return
    torch.optim.Adam([torch.zeros(1)])  # imports seconds' worth of modules
    wait_for_turn(job["file"], number)
    rank = joined(torch, job, number, torch.device("cuda", job["gpus"][number]) if cuda else torch.device("cpu"))
    all_reduce.latency(rank)
    keep_nccl(rank, job["file"])
    all_reduce.bandwidth(rank)
    keep_nccl(rank, job["file"])
    data_parallel.train(rank)
    torch.distributed.destroy_process_group()


def wait_for_turn(file: str, number: int) -> None:
    from gpudoctor.worker.measuring.bench import GO, touch

    touch(file + READY % number)
    while not os.path.exists(file + GO):
        if not os.path.isdir(os.path.dirname(file)):  # all is over
            os._exit(1)
        time.sleep(POLL_SECONDS)


def joined(torch: Any, job: Dict[str, Any], number: int, device: Any) -> Rank:
    """This rank, after it has found the others."""
    from gpudoctor.worker.measuring.bench import Bench
    from gpudoctor.worker.measuring.rank import Rank

    everybody = Bench(job["file"], job["gpus"], job["level"])
    bench = everybody if number == 0 else Bench(os.devnull, job["gpus"], job["level"])
    bench.step("connecting %d ranks by %s" % (len(job["gpus"]), job["backend"]))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    started = time.monotonic()
    torch.distributed.init_process_group(job["backend"], timeout=datetime.timedelta(seconds=COLLECTIVE_SECONDS))
    rank = Rank(torch, number, len(job["gpus"]), job["gpus"][number], device, bench, everybody, {})
    rank.barrier()
    bench.keep("connected", seconds=round(time.monotonic() - started, 3), ranks=rank.ranks, backend=job["backend"])
    return rank


def keep_nccl(rank: Rank, file: str) -> None:
    """Keeps "nccl": what the logs of all ranks say, where NCCL writes them."""
    from gpudoctor.worker.measuring import nccl_log

    rank.barrier()
    if rank.number == 0 and rank.device.type == "cuda":
        found = nccl_log.parsed(logs(file))
        found.setdefault("version", ".".join(map(str, rank.torch.cuda.nccl.version())))
        rank.bench.keep("nccl", **found)


def logs(file: str) -> str:
    """All that NCCL wrote: into files of its own, or, where somebody has set NCCL_DEBUG, among the rest."""
    texts = []
    for path in [*sorted(glob.glob(glob.escape(file) + ".nccl.*")), file + ".log"]:
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as opened:
            texts.append(opened.read())
    return "\n".join(texts)


if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path[0] == folder:  # as for any script; nothing in there must hide other modules
        del sys.path[0]
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(folder))))
    from gpudoctor.worker.child import die_with_parent

    die_with_parent()  # torchrun gives each rank a session of its own, which a kill of the workload's would miss
    main(json.loads(sys.argv[1]))
