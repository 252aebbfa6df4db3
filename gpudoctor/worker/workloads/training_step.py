"""Overfits a transformer block: fp16 mixed precision (autocast) with a GradScaler, the first loss verified in fp32."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, NamedTuple

from gpudoctor.worker.measuring import clock, torch_gpu
from gpudoctor.worker.measuring.bench import Bench, Workload, finite

STEPS = 40
WARM_UP = 5  # steps that are not timed
LEARNING_RATE = 1e-3
# For the loss, a mean over very many elements: single fp16 roundings nearly cancel out.
ALLOWED_ERROR = 16 * torch_gpu.ROUNDING["fp16"]
SEED = 0
SMALL = 1 << 30  # with fewer bytes free the model is smaller


class Shape(NamedTuple):
    """The shape of the block and its examples."""

    width: int
    heads: int
    batch: int
    length: int


SHAPE = Shape(width=512, heads=8, batch=16, length=128)
TINY = Shape(width=64, heads=4, batch=4, length=16)


def run(bench: Bench) -> None:
    """training: {"steps_per_second"}. scaler: {"first_scale", "scale", "skipped_steps"}.

    loss: {"first", "first_fp32", "last", "finite", "relative_error", "allowed_error", "wrong"}; values that are not finite are
    null.
    """
    device = torch_gpu.gpu(bench)
    measure(bench, device, SHAPE if torch_gpu.free_bytes() > SMALL else TINY)


def measure(bench: Bench, device: Any, shape: Shape) -> None:
    import torch

    bench.step("building the model")
    torch.manual_seed(SEED)
    model = torch.nn.TransformerEncoderLayer(shape.width, shape.heads, 4 * shape.width, dropout=0.0, batch_first=True).to(device)
    inputs, targets = (torch.randn(shape.batch, shape.length, shape.width, device=device) for _ in range(2))

    def loss() -> Any:
        return torch.nn.functional.mse_loss(model(inputs).float(), targets)

    with torch.no_grad():
        model.train()  # evaluation mode uses a different, fused implementation
        first_fp32 = float(loss().item())
    scaler = torch.amp.GradScaler(device.type)
    first_scale = scaler.get_scale()
    step = stepping(loss, torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE), scaler, device.type)
    losses = [step() for _ in range(WARM_UP)]
    torch_gpu.synchronize()
    with bench.section("training") as values:
        began = clock.now()
        losses += [step() for _ in range(STEPS - WARM_UP)]
        torch_gpu.synchronize()
        values["steps_per_second"] = (STEPS - WARM_UP) / (clock.now() - began)
    found = torch.stack(losses).tolist()
    bench.keep("loss", **judged(found, first_fp32))
    bench.keep("scaler", first_scale=first_scale, scale=scaler.get_scale(), skipped_steps=skipped(first_scale, scaler))


def stepping(loss: Callable[[], Any], optimizer: Any, scaler: Any, device_type: str) -> Callable[[], Any]:
    """One step as in the documentation of torch.amp; returns the loss before it."""
    import torch

    def step() -> Any:
        optimizer.zero_grad()
        with torch.autocast(device_type, dtype=torch.float16):
            found = loss()
        scaler.scale(found).backward()
        scaler.step(optimizer)
        scaler.update()
        return found.detach()

    return step


def judged(losses: List[float], first_fp32: float) -> Dict[str, Any]:
    """Whether the losses are finite, and whether the first one matches fp32."""
    error = abs(losses[0] - first_fp32) / first_fp32
    return {
        "first": finite(losses[0]),
        "first_fp32": finite(first_fp32),
        "last": finite(losses[-1]),
        "finite": all(map(math.isfinite, [first_fp32, *losses])),
        "relative_error": finite(error),
        "allowed_error": ALLOWED_ERROR,
        "wrong": not error <= ALLOWED_ERROR,
    }


def skipped(first_scale: float, scaler: Any) -> int:
    """How many steps the scaler skipped because gradients were too large for fp16: each halves its scale."""
    scale = scaler.get_scale()
    return round(math.log(first_scale / scale, 1 / scaler.get_backoff_factor())) if 0 < scale < first_scale else 0


WORKLOAD = Workload(run, runtime="torch with optimizers", typical_seconds=1)
