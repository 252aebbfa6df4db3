"""Commands that install another build of PyTorch together with the packages that are compiled against it.

https://docs.vllm.ai/en/latest/getting_started/installation/gpu/
https://docs.sglang.io/get_started/install.html
"""

from __future__ import annotations

from dataclasses import replace

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.knowledge import wheels
from gpudoctor.model import Fix

INDEX = "https://download.pytorch.org/whl/"
TAGGED = ("torchvision", "torchaudio", "torchtext", "torchcodec", "torchao", "fbgemm-gpu", "torch-tensorrt", "xformers")
USUAL = ["torchvision", "torchaudio"]  # if a text mentions only PyTorch
VLLM, OF_VLLM = "https://wheels.vllm.ai/{}/{}", "cu129"  # its build for CUDA 12 if the default build is for CUDA 13
SGLANG, OF_SGLANG = "https://docs.sglang.ai/whl/{}", ("sglang-kernel", "sgl-kernel")
REBUILT = (
    *("flash-attn", "flash-attn-3", "causal-conv1d", "mamba-ssm", "apex", "natten", "sageattention", "transformer-engine-torch"),
    *("mmcv", "mmcv-full", "detectron2", "pytorch3d", "torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv"),
    *("pyg-lib", "dgl", "auto-gptq", "gptqmodel", "autoawq-kernels", "exllamav2", "tinycudann", "nvdiffrast", "gsplat", "kaolin"),
)
REMOVE, INSTALL = "<python> -m pip uninstall -y {}", "<python> -m pip install"
BUILD = "<python> -m pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir"
AGAIN = "{}; {} is rebuilt for it, which requires nvcc and takes time"


def install(facts: Facts, fix: Fix, release: str, variant: str) -> Fix:
    """The fix with its command: PyTorch, the companions on PyTorch's own index, and the packages that must be rebuilt."""
    tagged = [name for name in TAGGED if facts.python.package(name)] or (USUAL if facts.texts.alone else [])
    if facts.python.package("vllm"):
        lines = with_vllm(facts, tagged, release, variant)
    else:
        names = f"torch=={release} {' '.join(tagged)}".rstrip()
        lines = [REMOVE.format(" ".join(["torch", *tagged])), f"{INSTALL} {names} --index-url {INDEX}{variant}"]
    rebuilt = [name for name in REBUILT if facts.python.package(name)]
    if rebuilt:
        lines.append(f"{BUILD} {' '.join(same(facts, name) for name in rebuilt)}")
    title = AGAIN.format(fix.title, " and ".join(rebuilt)) if rebuilt else fix.title
    return replace(fix, title=title, command=" && ".join([*lines, *sglang(facts, variant)]))


def with_vllm(facts: Facts, tagged: list[str], release: str, variant: str) -> list[str]:
    """vLLM pins its PyTorch and is compiled for its CUDA: all must be of the same build, or vLLM cannot be imported."""
    own = is_unusual(facts, variant)
    version = same(facts, "vllm").removeprefix("vllm==")
    chosen = [f"vllm=={version}" + (f"+{variant}" if own else ""), f"torch=={release}", *tagged]
    indexes = ([VLLM.format(version, variant)] if own else []) + [INDEX + variant]
    extra = " ".join(f"--extra-index-url {index}" for index in indexes)
    return [REMOVE.format(" ".join(["vllm", "torch", *tagged])), f"{INSTALL} {' '.join(chosen)} {extra}"]


def is_unusual(facts: Facts, variant: str) -> bool:
    """Whether this differs from vLLM's build on PyPI."""
    torch = facts.python.package("torch")
    row = wheels.torch_release(torch.version) if torch else None
    return variant == OF_VLLM and row is not None and row.default.startswith("cu13")


def variant_of_vllm(driver: str) -> str | None:
    """The variant of vLLM's build for CUDA 12; None if the driver is too old for it."""
    row = wheels.variant(OF_VLLM)
    return OF_VLLM if row and Version(driver) >= Version(row.least) else None


def sglang(facts: Facts, variant: str) -> list[str]:
    found = " ".join(same(facts, name) for name in OF_SGLANG if facts.python.package(name))
    index = SGLANG.format("cu130" if variant.startswith("cu13") else OF_VLLM)
    return [f"{INSTALL} --force-reinstall --no-deps {found} --index-url {index}"] if found else []


def same(facts: Facts, name: str) -> str:
    """The requirement for the installed release."""
    package = facts.python.package(name)
    return f"{name}=={Version(package.version).public.partition('+')[0]}" if package else name
