"""What the name of a kernel says about it: its kind of work, its precision, and whether it uses the tensor cores."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

COMMUNICATION = re.compile(r"nccl(Dev)?Kernel|nvshmem|deep_ep|multimem_all_reduce")
ATTENTION = re.compile(
    r"""
    flash_(fwd|bwd|attn) | fmha | FlashAttn | pytorch_flash | mem_eff | AttentionKernel | FwdKernel | flex_attention
    | cudnn_generated_fort_native_sdpa | sdpa_sm\d+
    """,
    re.VERBOSE,
)
CONVOLUTION = re.compile(
    r"""
    conv | wgrad | dgrad | fprop | winograd | implicit_gemm | nhwcKernel | nchwKernel
    """,
    re.VERBOSE | re.IGNORECASE,
)
MATMUL = re.compile(
    r"""
    gemm | gemv | nvjet | xmma | cutlass | matmul | splitKreduce | cublas | dot_kernel | _mm_
    | _mm(?![a-z])
    """,
    re.VERBOSE | re.IGNORECASE,
)
COPY = re.compile(
    r"""
    direct_copy_kernel | CatArrayBatchedCopy | copy_device_to_device | triton_\w*_copy | transpose
    | permute
    """,
    re.VERBOSE,
)
OPTIMIZER = re.compile(
    r"""
    multi_tensor_apply | FusedAdam | fused_adam | adamw?_kernel | FusedOptimizer
    """,
    re.VERBOSE | re.IGNORECASE,
)
NORM = re.compile(
    r"""
    layer_?norm | batch_?norm | rms_?norm | GammaBeta | bn_(fw|bw) | RowwiseMoments
    """,
    re.VERBOSE | re.IGNORECASE,
)
REDUCTION = re.compile(
    r"""
    reduce_kernel | softmax | _red_ | _per_ | cub::Device | nll_loss | cross_entropy
    """,
    re.VERBOSE | re.IGNORECASE,
)
ELEMENTWISE = re.compile(
    r"""
    elementwise | triton_poi | vectorized | fill | index | gather | scatter | dropout | embedding
    """,
    re.VERBOSE | re.IGNORECASE,
)
KINDS = (
    ("communication", COMMUNICATION),
    ("attention", ATTENTION),
    ("convolution", CONVOLUTION),
    ("matmul", MATMUL),
    ("optimizer", OPTIMIZER),
    ("normalisation", NORM),
    ("reduction", REDUCTION),
    ("copy", COPY),
    ("elementwise", ELEMENTWISE),
)
TENSOR = re.compile(
    r"""
    tensorop | s?\d*(?:16816|1688|884|161616|161632)(?:gemm|fprop|dgrad|wgrad|conv|cudnn|_) | [hs]\d{4,}gemm
    | hmma | imma | wgmma | gmma
    | nvjet | tf32 | bf16 | bf32bf | f16f16 | fp8 | e4m3 | e5m2 | [hi]884 | h1688 | s16816
    """,
    re.VERBOSE | re.IGNORECASE,
)
NO_TENSOR = re.compile(r"simt|sgemm|dgemm|ffma|f32f32_f32f32|fp32_fp32|cgemm|zgemm|winograd", re.IGNORECASE)
SINGLE = re.compile(
    r"""
    sgemm | simt | f32f32 | ffma | gemm_f32 | float, float, float | <float | Float32
    """,
    re.VERBOSE | re.IGNORECASE,
)
TF32 = re.compile(
    r"""
    tf32 | 1688gemm(?!_f16|_bf16) | s1688(?!_f16|_bf16) | nvjet_(sm\d+_)?s(?!m\d) | tensorop_s1688
    """,
    re.VERBOSE | re.IGNORECASE,
)
HALF = re.compile(
    r"""
    bf16 | bfloat16 | f16 | half | hgemm | h884 | h1688 | s16816 | nvjet_(sm\d+_)?[th] | BFloat16 | Half | fp16
    """,
    re.VERBOSE,
)


class About(NamedTuple):
    """kind: as in KINDS, or "other". tensor: whether the tensor cores work, None if the name does not say. precision: "half",
    "tf32", "single", or "" if the name does not say."""

    kind: str
    tensor: bool | None
    precision: str


@lru_cache(maxsize=4096)
def about(name: str) -> About:
    kind = next((kind for kind, pattern in KINDS if pattern.search(name)), "other")
    if kind not in ("matmul", "convolution", "attention"):
        return About(kind, None, "")
    return About(kind, _tensor(name), _precision(name))


def _tensor(name: str) -> bool | None:
    if re.search(r"tf32|tensorop|nvjet|hmma|gmma", name, re.IGNORECASE):
        return True
    if NO_TENSOR.search(name):
        return False
    return True if TENSOR.search(name) else None


def _precision(name: str) -> str:
    if TF32.search(name):
        return "tf32"
    if HALF.search(name):
        return "half"
    return "single" if SINGLE.search(name) else ""


def short(name: str) -> str:
    """A name that fits a line: without `void`, template arguments and parameters.

    >>> short("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int, float)")
    'vectorized_elementwise_kernel'
    """
    plain = name.removeprefix("void ")
    depth, kept = 0, []
    for sign in plain:
        depth += sign in "<("
        if not depth:
            kept.append(sign)
        depth -= sign in ">)"
    found = "".join(kept).strip().replace("::(anonymous namespace)", "")
    return found.rpartition("::")[2] or plain[:60]
