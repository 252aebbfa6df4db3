"""Installed packages that were chosen for a GPU although PyTorch is a build for CPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.packages import CondaPackage

# Packages that are built for CUDA according to their names; RAPIDS is installed with CuPy and Numba.
BUILT_FOR_CUDA = re.compile(
    r"""
    cupy-cuda\d+x?
    | jax-cuda\d+-plugin
    | numba-cuda
    | (?:cudf|cuml|cugraph)-cu\d+
    | paddlepaddle-gpu
    | mxnet-cu\d+
    | nvidia-dali-cuda\d+
    """,
    re.VERBOSE,
)
# Useless with a CPU-only PyTorch; Triton is installed only with GPU builds.
NEED_TORCH_WITH_CUDA = (
    *("vllm", "sglang", "sgl-kernel", "lmdeploy", "lightllm", "xformers", "flash-attn", "flash-attn-3", "bitsandbytes", "apex"),
    *("unsloth", "deepspeed", "mamba-ssm", "causal-conv1d", "sageattention", "flashinfer-python", "liger-kernel", "triton"),
    *("auto-gptq", "gptqmodel", "autoawq", "autoawq-kernels", "exllamav2", "nvdiffrast", "gsplat", "tinycudann"),
    *("torch-tensorrt", "transformer-engine", "transformer-engine-torch"),
)
COMPANIONS = ("torchvision", "torchaudio", "torch-scatter", "torch-sparse", "torch-cluster", "pyg-lib", "fbgemm-gpu", "dgl")


def wanting(facts: Facts) -> str | None:
    """A package that was installed for a GPU, or needs PyTorch there."""
    return needing_torch(facts) or on_gpu(facts)


def on_gpu(facts: Facts) -> str | None:
    """Another framework that was installed for the GPU."""
    by_name = next((name for name in facts.python.packages if BUILT_FOR_CUDA.fullmatch(name)), None)
    if by_name:
        return by_name
    conda: Mapping[str, CondaPackage] = known(lambda: facts.python.conda_packages, {})
    of_conda = next((name for name in ("jaxlib", "tensorflow") if name in conda and "cuda" in conda[name].build), None)
    jaxlib = facts.python.package("jaxlib")
    if of_conda or (jaxlib and "cuda" in jaxlib.version):
        return of_conda or "jaxlib"
    if "cupy" in conda or "cupy-core" in conda:
        return "cupy"
    return "tensorflow" if _is_tensorflow_with_cuda(facts) else None


def _is_tensorflow_with_cuda(facts: Facts) -> bool:
    """tensorflow[and-cuda]: neither plain TensorFlow nor a CPU-only PyTorch installs NVIDIA's wheels."""
    wheels = any(re.fullmatch(r"nvidia-cudnn-cu\d+", name) for name in facts.python.packages)
    return facts.python.package("tensorflow") is not None and wheels


def needing_torch(facts: Facts) -> str | None:
    """An installed package that needs PyTorch on the GPU."""
    of_cuda = (name for name in COMPANIONS if (package := facts.python.package(name)) and "cu1" in package.version)
    return next((name for name in NEED_TORCH_WITH_CUDA if facts.python.package(name)), None) or next(of_cuda, None)
