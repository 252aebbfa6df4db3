"""Compare the CUDA variant of PyTorch's wheels with the requested release and with the base image."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.lint.bases import Base, Pair, base
from gpudoctor.lint.dockerfile import Dockerfile, Stage, Step
from gpudoctor.lint.environments import elsewhere
from gpudoctor.lint.installs import PipInstall, pip_installs
from gpudoctor.lint.model import Fault, Rule
from gpudoctor.lint.rules.extensions import compiled

_INSTALL = "https://pytorch.org/get-started/previous-versions/"

NO_SUCH_WHEEL = Rule(
    id="wheel-index-without-version",
    title="This release of torch has no wheel for that CUDA version",
    why="Each release is built for only two to four CUDA versions. pip finds nothing in the index, or, if it also searches "
    "PyPI, silently installs another build than the intended one.",
    write="RUN pip install torch==2.9.1 --index-url https://download.pytorch.org/whl/cu128",
    references=(_INSTALL, "https://github.com/pytorch/pytorch/blob/main/RELEASE.md"),
    status="fail",
)
NEWER = Rule(
    id="wheel-cuda-newer-than-base",
    title="The wheels' CUDA is a major version newer than the base image's",
    why="The wheels include their own CUDA, so they need a newer driver than the base image requires. The container starts on "
    "hosts where torch then reports that the driver is too old. The CUDA of the base image is unused.",
    write="# a base image with the CUDA of the wheels, or a plain one: FROM python:3.12-slim",
    references=("https://docs.nvidia.com/deploy/cuda-compatibility/", _INSTALL),
)
MISMATCH = Rule(
    id="extension-toolkit-mismatch",
    title="CUDA extensions are compiled with another CUDA than torch",
    why="torch.utils.cpp_extension stops if nvcc and torch have different CUDA major versions: 'The detected CUDA version "
    "mismatches the version that was used to compile PyTorch'.",
    write="# a devel base image with the same CUDA as the wheels",
    references=("https://github.com/pytorch/pytorch/blob/main/torch/utils/cpp_extension.py",),
    status="fail",
)
CPU = Rule(
    id="cpu-wheel-in-gpu-image",
    title="CPU-only wheels are installed in a GPU image",
    why="They contain no CUDA: torch.cuda.is_available() is False on every host. The CUDA of the base image is unused.",
    write="RUN pip install torch --index-url https://download.pytorch.org/whl/cu128",
    references=(_INSTALL,),
)
RULES = (NO_SUCH_WHEEL, NEWER, MISMATCH, CPU)

_VARIANT = re.compile(r"download(?:-r2)?\.pytorch\.org/whl/(cu\d{2,3}|cpu)(?:/|$)")
_NEWEST = {11: "11.8.0", 12: "12.9.1", 13: "13.0.2"}


def dockerfile(file: Dockerfile) -> Iterator[Fault]:
    for stage in file.stages:
        image = base(stage.root.image)
        for step in stage.steps:
            for install in pip_installs(step):
                if install.command.sometimes:
                    continue  # one of several installs: which one runs is unknown
                torch = install.of("torch", "torchvision", "torchaudio")
                variant = _variant(install)
                if torch and variant == "cpu" and image.has_cuda and stage in file.shipped:
                    yield CPU.at(torch.line, f"CPU-only {torch.name} on {stage.root.image}", _on_gpu(image))
                elif torch and variant and variant != "cpu":
                    yield from _existing(install, variant)
                    yield from _against(install, cuda_of(variant), step, stage, stage in file.shipped)


def _variant(install: PipInstall) -> str:
    """The one variant that is requested, by local version or by index; "" if there is not exactly one."""
    local = {
        found[1] for requirement in install.requirements if (found := re.search(r"\+(cu\d{2,3}|cpu)$", requirement.specifier))
    }
    asked = local or {found[1] for url in (install.index, *install.extras) if (found := _VARIANT.search(url))}
    return asked.pop() if len(asked) == 1 else ""


def cuda_of(variant: str) -> Pair:
    """(12, 8) of "cu128"."""
    return int(variant[2:-1]), int(variant[-1])


def _existing(install: PipInstall, variant: str) -> Iterator[Fault]:
    torch = install.of("torch")
    version = torch.pinned.partition("+")[0] if torch else ""
    if not torch or not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return
    from gpudoctor.knowledge import wheels

    release = wheels.torch_release(version)
    if release is None or release.version != version or not release.variants_verified or variant in release.variants:
        return
    message = f"torch {version} is built for {', '.join(release.variants)}, not for {variant}"
    fallback = not install.index and "+" not in torch.specifier and release.default != variant
    if fallback:
        message += f"; pip installs the build for {release.default} from PyPI"
    nearest = min(release.variants, key=lambda name: abs(int(name[2:]) - int(variant[2:])))
    url = f"https://download.pytorch.org/whl/{nearest}"
    yield NO_SUCH_WHEEL.at(
        torch.line, message, f"RUN pip install torch=={version} --index-url {url}", "warn" if fallback else "fail"
    )


def _against(install: PipInstall, cuda: Pair, step: Step, stage: Stage, shipped: bool) -> Iterator[Fault]:
    image = base(stage.root.image)
    if image.family not in ("cuda", "ngc") or not image.cuda or image.cuda[0] == cuda[0] or elsewhere(install, step, stage):
        return
    seen = f"wheels for CUDA {cuda[0]}.{cuda[1]} on {stage.root.image}"
    if (image.flavour == "devel" or image.family == "ngc") and (what := next(iter(compiled(stage)), None)):
        version = _NEWEST.get(cuda[0], f"{cuda[0]}.{cuda[1]}.0")
        yield MISMATCH.at(install.line, f"{seen}; {what.name} is compiled", f"FROM nvidia/cuda:{version}-devel-ubuntu22.04")
    elif cuda[0] > image.cuda[0] and shipped:
        yield NEWER.at(install.line, seen)


def _on_gpu(image: Base) -> str:
    variant = {11: "cu118", 12: "cu128", 13: "cu130"}.get(image.cuda[0] if image.cuda else 12, "cu128")
    return f"RUN pip install torch --index-url https://download.pytorch.org/whl/{variant}"
