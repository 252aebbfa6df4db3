"""The GPU of the profiled program computes instead of moving its own memory.

What it means
torch.cat, contiguous, clone, repeat and a change of type write all their data again. In a loop that lengthens a tensor by one row
with torch.cat, everything before is copied in each round: the work grows with the square of the length.

How it is judged
gpudoctor profile adds the times of the kernels that only copy. They are a problem from 40 % of the time of all kernels on, if
that is 20 % of the recorded time or more. The operator that launches most of them is named. If it is torch.cat, a loop
lengthens tensors.

Known exceptions
Programs whose work is to move data, such as a benchmark of memory, do so on purpose.

References
https://docs.pytorch.org/docs/stable/generated/torch.cat.html
https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_copy_.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.traced_ranks import evidence, percent, where, worst
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Status

LEAST = 0.4  # of the time of all kernels
LEAST_BUSY = 0.2  # of the window
COPIES = ("aten::cat", "aten::copy_", "aten::clone", "aten::index_select", "aten::index", "aten::gather", "aten::stack")
CAT = Problem(
    id="tensors-lengthened-by-cat",
    title="torch.cat copies whole tensors again and again",
    why="A tensor that is lengthened with torch.cat is copied as a whole each time, so each round takes longer than the one "
    "before. Written into a buffer of the final size, only the new part is moved.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Write into a tensor of the final size: cache[:, :, position] = key, or cache.index_copy_(…)"),
        Fix("In a model of transformers: generate with a static cache (cache_implementation='static')"),
        Fix("If the parts are only needed at the end: collect them in a list, and call torch.cat once"),
    ),
    references=("https://docs.pytorch.org/docs/stable/generated/torch.cat.html",),
)
MOVES = Problem(
    id="gpu-moves-its-memory",
    title="The GPU spends most of its time on copies inside its memory",
    why="Kernels that only copy reach the bandwidth of the memory, and compute nothing. Changes of type, of layout and of shape "
    "that need contiguous memory are the usual reasons.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Let torch.compile fuse copies into the kernels around them: model = torch.compile(model)"),
        Fix("Keep one layout and one type from layer to layer: channels_last for convolutions, weights in bfloat16"),
        Fix("Avoid contiguous(), clone() and repeat() where a view or expand() is enough"),
    ),
    references=("https://docs.pytorch.org/docs/stable/generated/torch.compile.html",),
)


def lost(rank: Rank) -> float:
    """The share of the window in which kernels only copy."""
    return rank.of_window(sum(row["seconds"] for row in rank.rows("kinds") if row["kind"] == "copy"))


def judge(facts: Facts) -> Iterator[Finding]:
    rank, share = worst(facts, lost)
    kernels = rank.share("kernel_s")
    if share < LEAST_BUSY or share < LEAST * kernels:
        return
    copying = [row for row in rank.rows("operators") if row["name"] in COPIES and row["gpu_s"]]
    most = max(copying, key=lambda row: float(row["gpu_s"]), default=None)
    named = f", most of them by {most['name'].removeprefix('aten::')}" if most else ""
    said = f"kernels that only copy take {percent(share / kernels)} of the time of all kernels{where(rank)}{named}"
    found = evidence(rank, share, operator=most["name"] if most else None, calls=most["calls"] if most else None)
    is_cat = most is not None and most["name"] in ("aten::cat", "aten::stack")
    yield (CAT if is_cat else MOVES).found(said, found, confidence=Confidence.CONFIRMED if is_cat else Confidence.LIKELY)


def summary(facts: Facts) -> str:
    _, share = worst(facts, lost)
    return f"kernels that only copy take {percent(share)} of the time"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(CAT, MOVES),
    tags=("performance",),
)
