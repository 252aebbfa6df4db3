"""Fourth rung of the toolchain: PyTorch builds an extension with nvcc, the C++ compiler and Ninja, and loads it."""

from __future__ import annotations

import os
from typing import Any

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
    # For this GPU only: other entries of a user's TORCH_CUDA_ARCH_LIST would take minutes.
    os.environ["TORCH_CUDA_ARCH_LIST"] = "%d.%d" % torch.cuda.get_device_capability()
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


WORKLOAD = Workload(run, runtime="torch", scope=ONCE, seconds=300, typical_seconds=40)
