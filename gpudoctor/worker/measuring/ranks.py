"""The work of each rank in a torchrun session: all-reduces, training steps, collectives. workloads/distributed.py starts it.

Rank 0 takes the times, every rank verifies. No rank uses a GPU before the workload has its turn.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import glob
import importlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Dict

if TYPE_CHECKING:
    from gpudoctor.worker.measuring.rank import Rank

POLL_SECONDS = 0.02
MOST_CHARACTERS = 16 << 20  # of one log
READY = ".rank%d"  # suffix of the workload's file: this rank has imported everything it needs
COLLECTIVE_SECONDS = 40  # torch aborts a collective after this time
FAILURE_CHARACTERS = 500


def main(job: Dict[str, Any]) -> None:
    """job: {"file", "gpus", "level", "backend", "load": a module with a long load instead of measurements, and its "seconds"};
    "file" is the workload's; with ".failures" it holds the errors of failed ranks."""
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

    cuda = job["backend"] == "nccl"
    if cuda and not torch.distributed.is_nccl_available():
        with open(job["file"] + ".skip", "w", encoding="utf-8") as file:
            file.write("this build of torch has no NCCL")
        return
    torch.optim.Adam([torch.zeros(1)])  # imports modules that take seconds to load
    wait_for_turn(job["file"], number)
    rank = joined(torch, job, number, torch.device("cuda", job["gpus"][number]) if cuda else torch.device("cpu"))
    if job["load"]:
        importlib.import_module(job["load"]).burn(rank, job["seconds"])
    else:
        measure(rank, job)
    torch.distributed.destroy_process_group()


def measure(rank: Rank, job: Dict[str, Any]) -> None:
    from gpudoctor.worker.measuring import all_reduce, collectives, data_parallel

    all_reduce.latency(rank)
    keep_nccl(rank, job["file"])
    all_reduce.bandwidth(rank)
    keep_nccl(rank, job["file"])
    data_parallel.train(rank)
    if job["level"] == "full":
        all_reduce.latency_of_nccl(rank)
        collectives.measure(rank)


def wait_for_turn(file: str, number: int) -> None:
    from gpudoctor.worker.measuring.bench import GO, touch

    touch(file + READY % number)
    while not os.path.exists(file + GO):
        if not os.path.isdir(os.path.dirname(file)):  # the run has ended
            os._exit(1)
        time.sleep(POLL_SECONDS)


def joined(torch: Any, job: Dict[str, Any], number: int, device: Any) -> Rank:
    """This rank, connected to the others."""
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
    """Stores "nccl": the parsed logs of all ranks, if NCCL writes them."""
    from gpudoctor.worker.measuring import nccl_log

    rank.barrier()
    if rank.number == 0 and rank.device.type == "cuda":
        found = nccl_log.parsed(logs(file))
        found.setdefault("version", ".".join(map(str, rank.torch.cuda.nccl.version())))
        rank.bench.keep("nccl", **found)


def logs(file: str) -> str:
    """All output of NCCL: from its own files, or from the session's log if the user set NCCL_DEBUG."""
    texts = []
    for path in [*sorted(glob.glob(glob.escape(file) + ".nccl.*")), file + ".log"]:
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as opened:
            texts.append(opened.read(MOST_CHARACTERS))
    return "\n".join(texts)


if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path[0] == folder:  # set for any script; files in that folder could hide other modules
        del sys.path[0]
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(folder))))
    from gpudoctor.worker.child import die_with_parent

    die_with_parent()  # torchrun gives each rank its own session, so killing the workload would miss it
    main(json.loads(sys.argv[1]))
