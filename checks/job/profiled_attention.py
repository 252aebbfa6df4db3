"""The attention of the profiled program uses a fused kernel.

What it means
scaled_dot_product_attention has fused implementations (flash, memory-efficient, cuDNN), which never write the matrix of scores
to memory. If none of them supports the inputs, PyTorch computes softmax(QKᵀ)V with several kernels, which is several times
slower and needs memory that grows with the square of the length.

How it is judged
PyTorch's operator for this fallback has its own name, aten::_scaled_dot_product_attention_math. It is a problem if attention
takes 5 % of the time or more and the fallback was called. The time counts the forward pass only. A fused kernel for FP32 inputs
is a problem from 15 % of the time on, on GPUs that have tensor cores for BF16 (Ampere and newer).

Known exceptions
Attention that a model writes itself, as matmul and softmax, cannot be distinguished from other products.

References
https://arxiv.org/abs/2407.08608 (kernels for FP16 and BF16 on Hopper)
https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cuda.SDPAParams
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.traced_ranks import evidence, percent, where, worst
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

LEAST, LEAST_FP32 = 0.05, 0.15
FASTER = 4.0  # at least: 27 times as fast on an H200, where the mask went as well
MATH = "aten::_scaled_dot_product_attention_math"
OUTER = ("aten::scaled_dot_product_attention", MATH)
FUSED = ("flash", "efficient", "cudnn", "fused")
FALLBACK = Problem(
    id="attention-not-fused",
    title="Attention runs as separate kernels, not fused",
    why="The fused kernels need inputs in FP16 or BF16 (flash, cuDNN), a head size up to 256, and a mask that they "
    "support. For other "
    "inputs, or if they are disabled, PyTorch falls back to its reference implementation.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Give scaled_dot_product_attention inputs in BF16 or FP16, and is_causal=True instead of a mask of your own"),
        Fix("Print why each fused kernel is not used: with sdpa_kernel(SDPBackend.FLASH_ATTENTION) the call fails and says it"),
        Fix("Remove what disables them: sdpa_kernel(SDPBackend.MATH), enable_flash_sdp(False), enable_mem_efficient_sdp(False)"),
    ),
    references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",),
)


FULL_PRECISION = Problem(
    id="attention-in-fp32",
    title="Attention computes in FP32",
    why="The fastest fused kernels (flash, cuDNN) take FP16 and BF16 only. For FP32 inputs there is only the memory-efficient "
    "kernel, which hardly uses the tensor cores. Rotary embeddings or a norm outside autocast often leave queries in FP32.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Give scaled_dot_product_attention inputs in BF16: q, k, v = (x.to(torch.bfloat16) for x in (q, k, v))"),
        Fix("Run the model under torch.autocast('cuda', dtype=torch.bfloat16), which casts the inputs of attention, too"),
    ),
    references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",),
)


def in_fp32(rank: Rank) -> float:
    if rank.capability is not None and rank.capability < (8, 0):
        return 0.0
    rows = (row for row in rank.rows("kinds") if row["kind"] == "attention" and row["precision"] == "single")
    return rank.of_window(sum(row["seconds"] for row in rows))


def lost(rank: Rank) -> float:
    rows = {row["name"]: row for row in rank.rows("operators")}
    if MATH not in rows:
        return 0.0
    return rank.of_window(max(rows[name].get("gpu_whole_s") or 0.0 for name in OUTER if name in rows))


def names(rank: Rank) -> list[str]:
    return [row["name"] for row in rank.rows("operators") if "attention" in row["name"]]


def judge(facts: Facts) -> Iterator[Finding]:
    rank, share = worst(facts, in_fp32)
    if share >= LEAST_FP32:
        said = f"fused kernels for FP32 take {percent(share)} of the time{where(rank)}"
        yield FULL_PRECISION.found(said, evidence(rank, share * (1 - 1 / FASTER), share_percent=round(100 * share, 1)))
    rank, share = worst(facts, lost)
    if not names(rank):
        raise Skip("no attention operator was seen")
    if share < LEAST:
        return
    calls = next(row["calls"] for row in rank.rows("operators") if row["name"] == MATH)
    settings = {name: value for name, value in rank.settings.items() if name.endswith("_attention")}
    said = f"the forward pass of attention takes {percent(share)} of the time without a fused kernel{where(rank)}"
    yield FALLBACK.found(said, evidence(rank, share, calls=calls, settings=settings))


def summary(facts: Facts) -> str:
    rank, share = worst(facts, lost)
    if share:
        return f"attention without a fused kernel takes {percent(share)} of the time"
    fused = next((name for name in names(rank) if any(word in name for word in FUSED)), "")
    return f"attention is fused ({fused})" if fused else "attention without a fused kernel takes no time"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(FALLBACK, FULL_PRECISION),
    tags=("performance",),
)
