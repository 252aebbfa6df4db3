"""Frameworks that are installed without GPU support, or that replace a better build of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpudoctor.lint.bases import base
from gpudoctor.lint.dockerfile import Dockerfile, Stage, Step
from gpudoctor.lint.environments import elsewhere
from gpudoctor.lint.installs import PipInstall, Requirement, conda_installs, pip_installs
from gpudoctor.lint.model import Fault, Rule

REPLACED = Rule(
    id="ngc-torch-replaced",
    title="NVIDIA's own build of torch is replaced",
    why="The torch of an NGC image is built together with its CUDA, cuDNN, NCCL, Apex and Transformer Engine. If pip replaces "
    "it, packages compiled against it fail with 'undefined symbol' or run slower. If the image's own constraint pins it, pip "
    "fails with ResolutionImpossible.",
    write="# nothing; torch is installed; use the image of the month that has the version you need",
    references=(
        "https://docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes/index.html",
        "https://github.com/Dao-AILab/flash-attention/issues/709",
    ),
)
CONDA_CPU = Rule(
    id="conda-builds-for-processor",
    title="conda selects the CPU build because docker build has no GPU",
    why="conda selects a CUDA build from conda-forge only if it sees a driver (the virtual package __cuda). In docker build it "
    "sees none.",
    write="RUN CONDA_OVERRIDE_CUDA=12.8 conda install -y -c conda-forge pytorch-gpu",
    references=(
        "https://conda-forge.org/docs/user/tipsandtricks/#installing-cuda-enabled-packages-like-tensorflow-and-pytorch",
        "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-virtual.html",
    ),
)
CPU_ONLY = Rule(
    id="cpuonly-in-gpu-image",
    title="A CPU-only build is installed in a GPU image",
    why="It contains no CUDA, so it does not use any GPU of the container.",
    write="RUN pip install tensorflow[and-cuda]",
    references=("https://www.tensorflow.org/install/pip",),
)
TENSORFLOW_GPU = Rule(
    id="tensorflow-gpu-removed",
    title="The package tensorflow-gpu no longer exists",
    why="Since version 2.12 it is an empty package whose installation fails. The package tensorflow has the GPU support.",
    write="RUN pip install tensorflow[and-cuda]",
    references=("https://pypi.org/project/tensorflow-gpu/",),
    status="fail",
)
MUSL = Rule(
    id="musl-base-with-cuda",
    title="CUDA packages are installed on Alpine",
    why="The driver's libraries and all CUDA wheels are built for glibc, but Alpine uses musl. pip finds no wheel, and the "
    "libcuda that the toolkit mounts cannot be loaded.",
    write="FROM python:3.12-slim",
    references=(
        "https://github.com/NVIDIA/nvidia-docker/issues/1606",
        "https://github.com/NVIDIA/nvidia-container-toolkit/issues/1526",
    ),
    status="fail",
)
RULES = (REPLACED, CONDA_CPU, CPU_ONLY, TENSORFLOW_GPU, MUSL)

_TORCH = ("torch", "torchvision", "torchaudio")
_AGAIN = ("-U", "--upgrade", "-I", "--ignore-installed", "--force-reinstall", "--reinstall")
_GPU_PACKAGE = re.compile(
    r"""
    torch | cupy-cuda\d+x? | onnxruntime-gpu | tensorflow(?:-gpu)? | jax-cuda\d+.* | nvidia-cu.*-cu\d+
    | flash-attn | vllm | bitsandbytes | xformers
    """,
    re.VERBOSE,
)


def dockerfile(file: Dockerfile) -> Iterator[Fault]:
    for stage in file.stages:
        family = base(stage.root.image).family
        for step in stage.steps:
            yield from _pip(step, family, stage, stage in file.shipped)
            if family in ("cuda", "pytorch"):
                yield from _conda(step, stage in file.shipped)


def _pip(step: Step, family: str, stage: Stage, shipped: bool) -> Iterator[Fault]:
    for install in pip_installs(step):
        if install.command.sometimes or "--dry-run" in install.options:
            continue
        separate = elsewhere(install, step, stage)
        for found in install.requirements:
            if found.name in _TORCH and family == "ngc" and not separate and _replaces(found, install, stage.root.image):
                yield REPLACED.at(found.line, f"{found.name}{found.specifier} on {stage.root.image}")
            elif found.name == "tensorflow-cpu" and family in ("cuda", "ngc") and shipped and not separate:
                yield CPU_ONLY.at(found.line, f"{found.name} on {stage.root.image}")
            elif found.name == "tensorflow-gpu" and not (found.url or install.index or install.links) and _is_removed(found):
                version = found.pinned
                line = f"RUN pip install tensorflow[and-cuda]{'==' + version if version else ''}"
                yield TENSORFLOW_GPU.at(found.line, f"tensorflow-gpu{found.specifier}", line)
            elif family == "alpine" and _GPU_PACKAGE.fullmatch(found.name) and not found.url and not _own_wheels(install):
                yield MUSL.at(found.line, f"{found.name} on {stage.root.image}")


def _replaces(found: Requirement, install: PipInstall, image: str) -> bool:
    """pip keeps an installed package that satisfies the request. Only torchaudio is not installed; it brings its own torch."""
    constraints = (*install.options.get("-c", ()), *install.options.get("--constraint", ()))
    if "nvidia/pytorch" not in image or found.url or any("/etc/pip/" in name for name in constraints):
        return False
    if found.name != "torch" and "--no-deps" in install.options:
        return False
    if found.name == "torchaudio" or any(option in install.options for option in _AGAIN):
        return True
    return not _fits(found, image)


def _fits(found: Requirement, image: str) -> bool:
    """Whether the image's own build satisfies the request, as far as is known."""
    from gpudoctor.knowledge import images

    try:
        wanted = SpecifierSet(found.specifier)
    except InvalidSpecifier:
        return True  # a variable
    month = base(image).tag.partition("-")[0]
    row = next((row for row in images.table().pytorch if row.month == month), None)
    if ".nv" in found.pinned:  # NVIDIA's own
        return True
    if found.name == "torch" and row and "torch" not in row.unverified:
        return wanted.contains(row.torch, prereleases=True)
    return not found.pinned


def _is_removed(found: Requirement) -> bool:
    """2.12 is the empty package and the last release; pip takes the newest that is allowed."""
    try:
        wanted = SpecifierSet(found.specifier)
    except InvalidSpecifier:
        return False
    older = [f"{major}.{minor}.{patch}" for major, last in ((1, 15), (2, 11)) for minor in range(last + 1) for patch in range(6)]
    return wanted.contains("2.12.0") or not any(map(wanted.contains, older))


def _own_wheels(install: PipInstall) -> bool:
    """Whether the wheels come from an unknown source, which may have wheels for musl, or are for the CPU."""
    places = (*filter(None, (install.index,)), *install.extras, *install.links)
    return "cpu" in install.index or any("pytorch.org" not in place and "pypi.org" not in place for place in places)


def _conda(step: Step, shipped: bool) -> Iterator[Fault]:
    for command, packages, channels in conda_installs(step):
        names = {
            package.text.rpartition("::")[2].split("=")[0].split("<")[0].split(">")[0].lower(): package for package in packages
        }
        if command.sometimes:
            continue
        if "cpuonly" in names and shipped:
            yield CPU_ONLY.at(names["cpuonly"].line, "cpuonly", "RUN conda install -c conda-forge pytorch-gpu")
        elif (
            (torch := names.get("pytorch"))
            and "conda-forge" in channels
            and "pytorch" not in channels
            and "nvidia" not in channels
        ):
            told = "CONDA_OVERRIDE_CUDA" in step.values or "CONDA_OVERRIDE_CUDA" in command.settings or "cuda" in torch.text
            if not told and not any(name.startswith(("cuda", "pytorch-cuda", "pytorch-gpu")) for name in names):
                yield CONDA_CPU.at(torch.line, f"{torch.text} from conda-forge")
