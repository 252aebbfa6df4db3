"""Whether a PyTorch for the CPU is a fault: beside a framework that computes on the GPU it may be meant. Pure."""

from __future__ import annotations

import re

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.packages import CondaPackage

# Packages whose names say that they were built for CUDA; RAPIDS comes with CuPy and Numba.
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
# Are of no use with a PyTorch for the CPU; Triton comes with those for a GPU only.
NEED_TORCH_WITH_CUDA = (
    *("vllm", "sglang", "sgl-kernel", "lmdeploy", "lightllm", "xformers", "flash-attn", "flash-attn-3", "bitsandbytes", "apex"),
    *("unsloth", "deepspeed", "mamba-ssm", "causal-conv1d", "sageattention", "flashinfer-python", "liger-kernel", "triton"),
    *("auto-gptq", "gptqmodel", "autoawq", "autoawq-kernels", "exllamav2", "nvdiffrast", "gsplat", "tinycudann"),
    *("torch-tensorrt", "transformer-engine", "transformer-engine-torch"),
)
COMPANIONS = ("torchvision", "torchaudio", "torch-scatter", "torch-sparse", "torch-cluster", "pyg-lib", "fbgemm-gpu", "dgl")


def on_gpu(facts: Facts) -> str | None:
    """The framework beside PyTorch that was installed for the GPU."""
    by_name = next((name for name in facts.python.packages if BUILT_FOR_CUDA.fullmatch(name)), None)
    if by_name:
        return by_name
    conda = _conda(facts)
    of_conda = next((name for name in ("jaxlib", "tensorflow") if name in conda and "cuda" in conda[name].build), None)
    jaxlib = facts.python.package("jaxlib")
    if of_conda or (jaxlib and "cuda" in jaxlib.version):
        return of_conda or "jaxlib"
    if "cupy" in conda or "cupy-core" in conda:
        return "cupy"
    return "tensorflow" if _is_tensorflow_with_cuda(facts) else None


def _conda(facts: Facts) -> dict[str, CondaPackage]:
    return known(lambda: facts.python.conda_packages, {})


def _is_tensorflow_with_cuda(facts: Facts) -> bool:
    """tensorflow[and-cuda]: plain TensorFlow brings none of NVIDIA's wheels, and neither does a PyTorch for the CPU."""
    wheels = any(re.fullmatch(r"nvidia-cudnn-cu\d+", name) for name in facts.python.packages)
    return facts.python.package("tensorflow") is not None and wheels


def needing_torch(facts: Facts) -> str | None:
    """A package that is here for PyTorch on the GPU."""
    of_cuda = (name for name in COMPANIONS if (package := facts.python.package(name)) and "cu1" in package.version)
    return next((name for name in NEED_TORCH_WITH_CUDA if facts.python.package(name)), None) or next(of_cuda, None)
