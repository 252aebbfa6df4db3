"""Fourth rung of the toolchain: PyTorch builds an extension with nvcc, the C++ compiler and Ninja, and loads it."""

from __future__ import annotations

import os
import re
from typing import Any, Tuple

from gpudoctor.worker.measuring import programs, square
from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload
from gpudoctor.worker.reply import Skip

DECLARATION = "torch::Tensor squared(torch::Tensor from);"
FUNCTION = """
torch::Tensor squared(torch::Tensor from) {
    torch::Tensor to = torch::empty_like(from);
    const int64_t vectors = from.numel() / 4;
    square<<<(vectors + 511) / 512, 512>>>((float4 *)to.data_ptr<float>(), (const float4 *)from.data_ptr<float>(), vectors);
    return to;
}
"""


def run(bench: Bench) -> None:
    if programs.nvcc() is None:
        raise Skip("nvcc is not installed, which PyTorch needs to build extensions", Skip.NOT_INSTALLED)
    square.by_torch(bench, build)


def build(torch: Any) -> square.Square:
    os.environ["TORCH_CUDA_ARCH_LIST"] = architectures(
        os.environ.get("TORCH_CUDA_ARCH_LIST", ""), torch.cuda.get_device_capability()
    )
    from torch.utils.cpp_extension import load_inline

    module = load_inline(
        name="gpudoctor_square",
        cpp_sources=DECLARATION,
        cuda_sources=square.SOURCE + FUNCTION,
        functions=["squared"],
        with_cuda=True,
    )
    squared: square.Square = module.squared
    return squared


def architectures(listed: str, capability: Tuple[int, int]) -> str:
    """The part of a user's TORCH_CUDA_ARCH_LIST that matters to this GPU: each entry takes a while to compile.

    Without an entry for this GPU: the last one, as the user's own extension would have it. Without a list: this GPU.
    """
    own = "%d.%d" % capability
    entries = re.split(r"[ ;]+", listed.strip()) if listed.strip() else [own]
    odd = [entry for entry in entries if not re.match(r"\d+\.\d+[af]?(\+PTX)?$", entry)]
    fitting = [entry for entry in entries if entry.partition("+")[0].rstrip("af") == own]
    return ";".join(odd + fitting) or entries[-1]


WORKLOAD = Workload(run, runtime="torch", scope=ONCE, seconds=300, typical_seconds=40)
