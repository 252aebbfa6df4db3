"""Training steps of all ranks with DistributedDataParallel."""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

from gpudoctor.worker.measuring.bench import finite, summary
from gpudoctor.worker.measuring.rank import Rank

WARM_UP = 3


class Shape(NamedTuple):
    """The model to train: square linear layers."""

    width: int
    layers: int
    batch: int
    learning_rate: float


LARGE, SMALL = Shape(2048, 8, 1024, 1e-4), Shape(64, 3, 32, 1e-3)
ROOMY = 3 << 30  # bytes of free memory needed for the large model
STEPS = 15


def train(rank: Rank) -> None:
    """Stores "training": DistributedDataParallel steps, after each rank compared its gradients with ones computed alone."""
    torch = rank.torch
    rank.bench.step("training: the model")
    shape = LARGE if rank.agreed(rank.free_bytes(), "MIN") >= ROOMY else SMALL
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
    """The examples of one rank; every rank can compute them."""
    torch = rank.torch
    generator = torch.Generator().manual_seed(1000 + number)
    inputs = torch.randn(shape.batch, shape.width, generator=generator).to(rank.device)
    return inputs, torch.ones_like(inputs)


def loss_of(torch: Any, model: Any, examples: Any) -> Any:
    inputs, targets = examples
    return torch.nn.functional.mse_loss(model(inputs), targets)


def gradients_alone(rank: Rank, model: Any, shape: Shape) -> List[Any]:
    """The gradients over the examples of all ranks, without communication."""
    parameters = list(model.parameters())
    found = [rank.torch.zeros_like(parameter) for parameter in parameters]
    for number in range(rank.ranks):
        loss = loss_of(rank.torch, model, batch(rank, shape, number)) / rank.ranks
        found = list(map(rank.torch.add, found, rank.torch.autograd.grad(loss, parameters)))
    return found


def compared(torch: Any, gradients: List[Any], alone: List[Any]) -> Dict[str, Any]:
    """{"gradient_checksum", "gradient_error"}: a checksum of the exact bits, and the relative distance from those computed
    alone."""
    checksum = sum(int(gradient.view(torch.int32).to(torch.int64).sum().item()) for gradient in gradients)
    distance, norm = (
        sum(float(gradient.double().square().sum().item()) for gradient in each)
        for each in (map(torch.sub, gradients, alone), alone)
    )
    return {"gradient_checksum": checksum, "gradient_error": finite(math.sqrt(distance / norm) if norm else math.nan)}


def timed_steps(rank: Rank, step: Callable[[], Any]) -> Dict[str, Any]:
    """{"milliseconds_per_step", "spread", "first_loss", "last_loss"}; a loss that is not finite is null."""
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
