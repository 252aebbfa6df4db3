"""What each rank of a torchrun session does: all-reduces, then training steps. workloads/distributed.py has it run as a script.

Rank 0 times, every rank verifies. No rank touches a GPU before the workload has its turn.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import functools
import glob
import json
import math
import os
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

POLL_SECONDS = 0.02
READY = ".rank%d"  # beside the workload's file: this rank has imported all that it needs
COLLECTIVE_SECONDS = 40  # after which torch gives a collective up
FAILURE_CHARACTERS = 500

MIB = 1 << 20
SIZES = (MIB, 16 * MIB, 256 * MIB, 1024 * MIB)
SHARE_OF_FREE = 4  # no buffer takes more than a fourth of what is free
SMALL_BYTES = 8
ROW = 4096  # elements after which the pattern repeats
LARGEST = 8  # the pattern's numbers are below this, so that sums over 36 ranks are exact in bf16
WARM_UP = 3
REPEATS = 5
BATCH_SECONDS = 0.06  # between two synchronizations
ITERATIONS = (2, 200)
PATIENCE_SECONDS = 1.0  # no size is tried of which one all-reduce would take longer


class Shape(NamedTuple):
    """The model that is trained: square linear layers."""

    width: int
    layers: int
    batch: int
    learning_rate: float


LARGE, SMALL = Shape(2048, 8, 1024, 1e-4), Shape(64, 3, 32, 1e-3)
ROOMY = 3 << 30  # bytes free for the large one
STEPS = 15


class Rank(NamedTuple):
    """One process of the session. bench: where results go, of rank 0 alone. own: this rank's results until now."""

    torch: Any
    number: int
    ranks: int
    gpu: int
    device: Any
    bench: Any
    everybody: Any
    own: Dict[str, Any]

    def keep(self, **values: Any) -> None:
        """Hands over results of this very rank."""
        self.own.update(values)
        self.everybody.keep("rank %d" % self.number, gpu=self.gpu, **self.own)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def barrier(self) -> None:
        if self.device.type == "cuda":
            self.torch.distributed.barrier(device_ids=[self.gpu])
        else:
            self.torch.distributed.barrier()
        self.synchronize()

    def agreed(self, value: int, operation: str) -> int:
        """The "MIN" or "MAX" of what all ranks say."""
        number = self.torch.tensor([value], dtype=self.torch.int64, device=self.device)
        self.torch.distributed.all_reduce(number, op=getattr(self.torch.distributed.ReduceOp, operation))
        return int(number.item())


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

    cuda = job["backend"] == "nccl"
    if cuda and not torch.distributed.is_nccl_available():
        with open(job["file"] + ".skip", "w", encoding="utf-8") as file:
            file.write("this build of torch has no NCCL")
        return
    torch.optim.Adam([torch.zeros(1)])  # imports seconds' worth of modules
    wait_for_turn(job["file"], number)
    rank = joined(torch, job, number, torch.device("cuda", job["gpus"][number]) if cuda else torch.device("cpu"))
    latency(rank)
    keep_nccl(rank, job["file"])
    bandwidth(rank)
    keep_nccl(rank, job["file"])
    train(rank)
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


def rows(rank: Rank, elements: int, dtype: Any) -> List[Any]:
    """What each rank puts in: whole numbers that are random, but known to all."""
    torch = rank.torch
    found = []
    for number in range(rank.ranks):
        generator = torch.Generator().manual_seed(number)
        row = torch.randint(0, LARGEST, (min(ROW, elements),), generator=generator)
        found.append(row.to(device=rank.device, dtype=dtype))
    return found


def wrong_elements(rank: Rank, buffer: Any) -> int:
    """All-reduces a pattern in `buffer`, and counts the elements that are not the exact sum."""
    pattern = rows(rank, buffer.numel(), buffer.dtype)
    lines = buffer.view(-1, len(pattern[0]))
    lines.copy_(pattern[rank.number].expand_as(lines))
    rank.torch.distributed.all_reduce(buffer)
    return int((lines != sum(pattern)).sum().item())


def seconds_each(rank: Rank, work: Callable[[], Any], iterations: int) -> float:
    """As nccl-tests: many iterations between two synchronizations, divided by their number."""
    rank.barrier()
    start = time.perf_counter()
    for _ in range(iterations):
        work()
    rank.synchronize()
    return (time.perf_counter() - start) / iterations


def timed(rank: Rank, work: Callable[[], Any]) -> Dict[str, Any]:
    """{"microseconds", "spread", "iterations"} of one call."""
    from gpudoctor.worker.measuring.bench import summary

    for _ in range(WARM_UP):
        work()
    fewest, most = ITERATIONS
    wanted = BATCH_SECONDS / seconds_each(rank, work, fewest)
    iterations = rank.agreed(int(max(fewest, min(most, wanted))), "MIN")
    found = summary([seconds_each(rank, work, iterations) * 1e6 for _ in range(REPEATS)])
    return {"microseconds": found["median"], "spread": found["spread"], "iterations": iterations}


def latency(rank: Rank) -> None:
    """Keeps "latency": all-reduces of 8 bytes, one after the other; and the first result that every rank verifies."""
    torch = rank.torch
    buffer = torch.zeros(SMALL_BYTES // 4, dtype=torch.float32, device=rank.device)
    with rank.bench.section("latency") as values:
        rank.keep(wrong_elements={name_of(SMALL_BYTES): wrong_elements(rank, buffer)})
        buffer.zero_()
        values.update(bytes=SMALL_BYTES, **timed(rank, lambda: torch.distributed.all_reduce(buffer)))


def bandwidth(rank: Rank) -> None:
    """Keeps "all-reduce 1 MiB" ...: {"bytes", "microseconds", "spread", "algorithm_gb_per_s", "bus_gb_per_s"}, in bf16, in place.

    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    dtype = rank.torch.bfloat16 if rank.device.type == "cuda" else rank.torch.float32
    most = rank.agreed(free_bytes(rank) // SHARE_OF_FREE, "MIN")
    for size in SIZES:
        if size > most:
            return
        buffer = rank.torch.empty(size // dtype.itemsize, dtype=dtype, device=rank.device)
        wrong = wrong_elements(rank, buffer)
        with rank.bench.section("all-reduce " + name_of(size)) as values:
            values.update(timed(rank, functools.partial(rank.torch.distributed.all_reduce, buffer)), bytes=size)
            values["algorithm_gb_per_s"] = size / values["microseconds"] / 1e3
            values["bus_gb_per_s"] = values["algorithm_gb_per_s"] * 2 * (rank.ranks - 1) / rank.ranks
        wrong += wrong_elements(rank, buffer)
        rank.keep(wrong_elements=dict(rank.own["wrong_elements"], **{name_of(size): wrong}))
        del buffer
        if rank.agreed(int(values["microseconds"]), "MAX") * 4 > PATIENCE_SECONDS * 1e6:
            return


def free_bytes(rank: Rank) -> int:
    if rank.device.type == "cuda":
        rank.torch.cuda.empty_cache()
        return int(rank.torch.cuda.mem_get_info(rank.device)[0])
    return SHARE_OF_FREE * SIZES[1]


def name_of(size: int) -> str:
    for unit, number in (("GiB", 1 << 30), ("MiB", MIB)):
        if size >= number:
            return "%d %s" % (size // number, unit)
    return "%d B" % size


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


def train(rank: Rank) -> None:
    """Keeps "training": steps of DistributedDataParallel, after each rank has compared its gradients with ones computed alone."""
    torch = rank.torch
    rank.bench.step("training: the model")
    shape = LARGE if rank.agreed(free_bytes(rank), "MIN") >= ROOMY else SMALL
    torch.manual_seed(0)
    with rank.device:
        model = built(torch, shape)
    distributed = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank.gpu] if rank.device.type == "cuda" else None)
    examples = batch(rank, shape, rank.number)
    rank.bench.step("training: gradients")
    loss_of(torch, distributed, examples).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    rank.keep(**compared(torch, gradients, gradients_alone(rank, model, shape)))
    optimizer = torch.optim.Adam(model.parameters(), lr=shape.learning_rate)

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(torch, distributed, examples)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with rank.bench.section("training") as values:
        values.update(timed_steps(rank, step))
        values["gradient_bytes"] = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    with rank.bench.section("training without communication") as values, distributed.no_sync():
        values["milliseconds_per_step"] = timed_steps(rank, step)["milliseconds_per_step"]


def built(torch: Any, shape: Shape) -> Any:
    def layers() -> Iterator[Any]:
        for _ in range(shape.layers - 1):
            yield torch.nn.Linear(shape.width, shape.width)
            yield torch.nn.GELU()
        yield torch.nn.Linear(shape.width, shape.width)

    return torch.nn.Sequential(*layers())


def batch(rank: Rank, shape: Shape, number: int) -> Any:
    """The examples of one rank, which every rank can make."""
    torch = rank.torch
    generator = torch.Generator().manual_seed(1000 + number)
    inputs = torch.randn(shape.batch, shape.width, generator=generator).to(rank.device)
    return inputs, torch.ones_like(inputs)


def loss_of(torch: Any, model: Any, examples: Any) -> Any:
    inputs, targets = examples
    return torch.nn.functional.mse_loss(model(inputs), targets)


def gradients_alone(rank: Rank, model: Any, shape: Shape) -> List[Any]:
    """The gradients over the examples of all ranks, without a word to the others."""
    parameters = list(model.parameters())
    found = [rank.torch.zeros_like(parameter) for parameter in parameters]
    for number in range(rank.ranks):
        loss = loss_of(rank.torch, model, batch(rank, shape, number)) / rank.ranks
        found = list(map(rank.torch.add, found, rank.torch.autograd.grad(loss, parameters)))
    return found


def compared(torch: Any, gradients: List[Any], alone: List[Any]) -> Dict[str, Any]:
    """{"gradient_checksum", "gradient_error"}: of the very bits, and the relative distance from the ones computed alone."""
    checksum = sum(int(gradient.view(torch.int32).to(torch.int64).sum().item()) for gradient in gradients)
    distance, norm = (
        sum(float(gradient.double().square().sum().item()) for gradient in each)
        for each in (map(torch.sub, gradients, alone), alone)
    )
    return {"gradient_checksum": checksum, "gradient_error": finite(math.sqrt(distance / norm) if norm else math.nan)}


def timed_steps(rank: Rank, step: Callable[[], Any]) -> Dict[str, Any]:
    """{"milliseconds_per_step", "spread", "first_loss", "last_loss"}; a loss that is not finite is null."""
    from gpudoctor.worker.measuring.bench import summary

    losses = [step() for _ in range(WARM_UP)]
    milliseconds = []
    for _ in range(STEPS):
        rank.synchronize()
        start = time.perf_counter()
        losses.append(step())
        rank.synchronize()
        milliseconds.append((time.perf_counter() - start) * 1e3)
    found = summary(milliseconds)
    return {
        "milliseconds_per_step": found["median"],
        "spread": found["spread"],
        "first_loss": finite(losses[0].item()),
        "last_loss": finite(losses[-1].item()),
    }


def finite(number: float) -> Any:
    return number if math.isfinite(number) else None


if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path[0] == folder:  # as for any script; nothing in there must hide other modules
        del sys.path[0]
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(folder))))
    from gpudoctor.worker.child import die_with_parent

    die_with_parent()  # torchrun gives each rank a session of its own, which a kill of the workload's would miss
    main(json.loads(sys.argv[1]))
