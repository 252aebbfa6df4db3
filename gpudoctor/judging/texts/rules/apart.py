"""Releases in a text that do not belong together: a wheel and its user, a program and the driver, PyTorch and the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.python import package
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

OLD_WHEEL = Problem(
    id="nvjitlink-wheel-too-old",
    title="The wheel of nvJitLink is older than the CUDA libraries that use it",
    why="The wheels of one PyTorch belong together. Another package, or a pin, installed an older nvidia-nvjitlink, which lacks "
    "the functions that cuSPARSE and cuSOLVER of this release call.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install the release of nvJitLink that the symbol names, or a newer one",
            "python -m pip install -U '<package>~=<least_version>'",
            verify="python -c 'import torch'",
            kind="install",
            needs=("network",),
        ),
    ),
    references=("https://github.com/pytorch/pytorch/issues/131312",),
)
FOR_NVIDIA = Problem(
    id="cuda-torch-on-amd-gpu",
    title="This PyTorch is built for CUDA, and the GPU is AMD's",
    why="PyPI's torch is the build for NVIDIA's CUDA. It looks for NVIDIA's driver, whatever GPU there is. AMD GPUs need the "
    "build for ROCm, which has another index.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Replace it with the build for ROCm; use --index-url, because --extra-index-url prefers PyPI's newer CUDA build "
            "(releases: https://pytorch.org/get-started/locally)",
            "python -m pip uninstall -y torch torchvision torchaudio && python -m pip install torch torchvision torchaudio "
            "--index-url https://download.pytorch.org/whl/rocm6.4",
            verify="python -c 'import torch; print(torch.__version__, torch.version.hip)'",
            kind="install",
            risk="disruptive",
            needs=("network",),
        ),
        Fix("In an image: take a tag whose PyTorch is built for ROCm (its version ends with +rocm)"),
    ),
    references=("https://pytorch.org/get-started/locally/", "https://github.com/YanWenKun/ComfyUI-Docker/issues/187"),
)
PROBLEMS = (OLD_WHEEL, FOR_NVIDIA)

_SYMBOL = re.compile(r"\b__nvJitLink\w+?_(?P<major>\d+)_(?P<minor>\d+)\b")


def old_jitlink(facts: Facts) -> Iterator[Finding]:
    """The loader misses a symbol of nvJitLink, and the installed wheel is older than the release in its name."""
    needed = next(filter(None, (_SYMBOL.search(text) for text in passages(facts))), None)
    for name in ("nvidia-nvjitlink-cu12", "nvidia-nvjitlink-cu13", "nvidia-nvjitlink") if needed else ():
        version = package(facts, name)
        least = f"{needed['major']}.{needed['minor']}"  # type: ignore[index]
        if version and _is_older(version, least):
            words = f"{name} is {version}, and a library calls a function of release {least}"
            evidence = {"package": name, "installed": version, "least_version": f"{least}.0"}
            yield OLD_WHEEL.found(words, evidence, confidence=Confidence.LIKELY)
            return


def _is_older(version: str, other: str) -> bool:
    try:
        return Version(version).release[:2] < Version(other).release[:2]
    except InvalidVersion:
        return False


_COMPILED = re.compile(r"Cuda compilation tools, release (\d+)\.(\d+)")
_REFUSED = re.compile(
    r"""
    device\ kernel\ image\ is\ invalid | unsupported\ toolchain | cudaErrorInvalidKernelImage
    | CUDA_ERROR_(?:INVALID_IMAGE|UNSUPPORTED_PTX_VERSION) | a\ PTX\ JIT\ compilation\ failed
    """,
    re.VERBOSE,
)


def compiled_for_newer_driver(facts: Facts) -> Iterator[Finding]:
    """The driver refuses a program's code, and the compiler in the text is newer than the CUDA that the driver supports."""
    text = "\n".join(passages(facts))
    compilers = {(int(match[1]), int(match[2])) for match in _COMPILED.finditer(text)}
    nvcc = known(lambda: facts.toolchain.nvcc)
    compilers |= {(nvcc.version[0], nvcc.version[1])} if nvcc and nvcc.version else set()
    supported = known(lambda: facts.cuda.driver_version)
    if supported and compilers and min(compilers) > tuple(supported[:2]) and _REFUSED.search(text):
        release = "{}.{}".format(*min(compilers))
        words = f"the code was compiled with CUDA {release}, and the driver supports CUDA {supported[0]}.{supported[1]}"
        evidence = {"compiled_with": release}
        yield facts.problems["unsupported-ptx-version"].found(words, evidence, confidence=Confidence.LIKELY)


_AMD = re.compile(
    r"""
    /dev/kfd\b | \[AMD/ATI\] | \bRadeon\b | \bRX\ ?[5-9]\d{3}\b | \bgfx\d{3,4}\b | \bInstinct\b | \bMI[23]\d\dX?\b
    """,
    re.VERBOSE,
)
_NVIDIA = re.compile(
    r"""
    \bNVIDIA\ (?:Corporation|GeForce|RTX|[AHLB]\d) | \bGeForce\b | \b[RG]TX\ ?\d | \bQuadro\b | \bTesla\b | /dev/nvidia\d
    | NVIDIA-SMI\ \d
    """,
    re.VERBOSE,
)
_NO_DRIVER = re.compile(
    r"""
    Found\ no\ NVIDIA\ driver | No\ CUDA\ GPUs\ are\ available | no\ NVIDIA\ GPU | is_available\(\)[^\n]*(?:\n[^\n]*)?\bFalse
    | Torch\ is\ not\ able\ to\ use\ GPU
    """,
    re.VERBOSE,
)
_FOR_CUDA = re.compile(r"\b\d+\.\d+\.\d+\+cu\d{2,3}\b")
_WHEELS = re.compile(r"\bnvidia[-_](?:cublas|cudnn|cuda[-_]runtime)[-_]cu1\d")
_FOR_ROCM = re.compile(r"\+rocm\d")


def cuda_on_amd(facts: Facts) -> Iterator[Finding]:
    """PyTorch finds no NVIDIA driver, and the text shows a GPU of AMD and no other."""
    text = "\n".join(passages(facts))
    if not (_AMD.search(text) and _NO_DRIVER.search(text)) or _NVIDIA.search(text):
        return
    build = _FOR_CUDA.search(text) or _WHEELS.search(text)
    after = _FOR_ROCM.search(text, build.end()) if build else None
    if build and not (after and "None" not in text):
        words = f"{build[0]} is for NVIDIA's CUDA, and the text shows a GPU of AMD"
        yield FOR_NVIDIA.found(words, {"build": build[0]}, confidence=Confidence.LIKELY)


RULES = (old_jitlink, compiled_for_newer_driver, cuda_on_amd)
