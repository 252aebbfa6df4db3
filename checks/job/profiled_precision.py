"""The profiled program uses the tensor cores for its matrix products.

What it means
Since Ampere, GPUs multiply FP32 matrices on tensor cores in TF32, up to eight times as fast as in full FP32, and in BF16 or
FP16 twice as fast again. PyTorch does neither unless the program allows TF32 or uses autocast.

How it is judged
The names of the kernels of matrix products and convolutions say whether they use tensor cores. FP32 kernels without tensor
cores are a problem from 10 % of the time on, on a GPU with tensor cores for them. Products in TF32 that take more than 30 % of
the time are a note: BF16 would be faster still.

Known exceptions
A computation that needs full FP32, such as a solver, is right to use it. Kernels whose name does not say their precision are
not judged.

References
https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
https://docs.pytorch.org/docs/stable/amp.html
https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.traced_ranks import evidence, percent, where, worst
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

LEAST, LEAST_TF32 = 0.10, 0.30
FASTER = 3.0  # times, which real layers reach with TF32
WORDS = {"half": "BF16 or FP16", "tf32": "TF32", "single": "FP32"}
PRODUCTS = ("matmul", "convolution")
AUTOCAST = Fix("Compute in BF16: wrap the forward pass and the loss in torch.autocast('cuda', dtype=torch.bfloat16)")
SINGLE = Problem(
    id="matmul-in-full-fp32",
    title="Matrix products run in full FP32, without tensor cores",
    why="TF32 keeps the range of FP32 and 10 bits of its mantissa, which is enough for training most networks. "
    "Without it the "
    "tensor cores, most of the GPU's arithmetic, do nothing.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(Fix("Allow TF32: call torch.set_float32_matmul_precision('high') at the start of the program"), AUTOCAST),
    references=(
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices",
        "https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",
    ),
)
NO_AUTOCAST = Problem(
    id="matmul-in-tf32",
    title="Matrix products run in TF32; BF16 would be faster",
    why="The tensor cores multiply BF16 twice as fast as TF32, and BF16 tensors need half of the memory and of its bandwidth.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(AUTOCAST,),
    references=("https://docs.pytorch.org/docs/stable/amp.html",),
)


def has_tensor_cores(rank: Rank) -> bool:
    """For FP32: since Ampere. An unknown GPU is taken for one that has them: all that torch supports in new versions have."""
    return rank.capability is None or rank.capability >= (8, 0)


def seconds(rank: Rank, precision: str) -> float:
    rows = (row for row in rank.rows("kinds") if row["kind"] in PRODUCTS and row["precision"] == precision)
    return float(sum(row["seconds"] for row in rows if precision != "single" or row["tensor"] is False))


def single(rank: Rank) -> float:
    return rank.of_window(seconds(rank, "single")) if has_tensor_cores(rank) else 0.0


def tf32(rank: Rank) -> float:
    return rank.of_window(seconds(rank, "tf32"))


def judge(facts: Facts) -> Iterator[Finding]:
    rank, share = worst(facts, single)
    if share >= LEAST:
        kernels = (row["name"] for row in rank.rows("kernels") if row["kind"] in PRODUCTS and row["precision"] == "single")
        lost = share * (1 - 1 / FASTER)
        said = f"matrix products and convolutions in full FP32 take {percent(share)} of the time{where(rank)}; with TF32 about "
        settings = {name: value for name, value in rank.settings.items() if "32" in name}
        found = evidence(rank, lost, share_percent=round(100 * share, 1), kernel=next(kernels, "")[:120], settings=settings)
        yield SINGLE.found(f"{said}{percent(lost)} could be saved", found)
        return
    rank, share = worst(facts, tf32)
    if share >= LEAST_TF32:
        said = f"matrix products and convolutions in TF32 take {percent(share)} of the time{where(rank)}"
        yield NO_AUTOCAST.found(said, evidence(rank, share / 2, share_percent=round(100 * share, 1))).as_note


def summary(facts: Facts) -> str:
    rank, _ = worst(facts, lambda one: one.window)
    found = {name: rank.of_window(seconds(rank, name)) for name in ("half", "tf32", "single")}
    shown = [
        f"{name} precision {percent(share)}" if name != "tf32" else f"TF32 {percent(share)}"
        for name, share in found.items()
        if share
    ]
    return f"matrix products take of the time: {', '.join(shown)}" if shown else "no matrix products of known precision"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(SINGLE, NO_AUTOCAST),
    tags=("performance",),
)
