"""CUDA extensions that are compiled while the image is built: they need nvcc and a list of GPU architectures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpudoctor.lint.bases import base
from gpudoctor.lint.budget import once
from gpudoctor.lint.dockerfile import Dockerfile, Stage, Step, sources
from gpudoctor.lint.installs import PipInstall, conda_installs, pip_installs, system_installs
from gpudoctor.lint.model import Fault, Rule

NO_COMPILER = Rule(
    id="cuda-compiler-missing",
    title="A CUDA extension is compiled in an image without nvcc",
    why="This package has no prebuilt wheel on PyPI, or is installed from source. Its build looks for the CUDA toolkit, which "
    "only devel images have: 'CUDA_HOME environment variable is not set', or 'nvcc: not found'.",
    write="FROM nvidia/cuda:12.9.1-devel-ubuntu24.04 AS build",
    references=(
        "https://github.com/Dao-AILab/flash-attention#installation-and-features",
        "https://nvidia.github.io/container-wiki/toolkit/container-images.html",
    ),
)
NO_ARCHITECTURES = Rule(
    id="cuda-arch-list-missing",
    title="CUDA extensions are compiled without a list of GPU architectures",
    why="Without the list, torch uses the architecture of the local GPU, which a build does not have. The result is "
    "'IndexError: list index out of range' in _get_cuda_arch_flags, or an extension that is silently built without CUDA.",
    write='ENV TORCH_CUDA_ARCH_LIST="8.0;8.6;8.9;9.0+PTX"',
    references=(
        "https://github.com/pytorch/pytorch/issues/137261",
        "https://github.com/mlcommons/training/issues/690",
        "https://docs.pytorch.org/docs/stable/cpp_extension.html",
    ),
)
RULES = (NO_COMPILER, NO_ARCHITECTURES)

# nvcc compiles these whenever pip gets the sources; those in _ASK_TORCH let torch choose the GPUs.
_ASK_TORCH = re.compile(
    r"""
    detectron2 | pytorch3d | grounding-?dino | xformers | torch-(?:scatter|sparse|cluster)
    | diff-gaussian-rasterization | simple-knn | nvdiffrast | mmcv(?:-full)? | torchsparse | minkowskiengine
    | pointnet2-ops | kaolin
    """,
    re.VERBOSE,
)
_COMPILED = re.compile(
    rf"""
    {_ASK_TORCH.pattern}
    | apex | flash-attn | flash-attention | tiny-cuda-nn | mamba | mamba-ssm | causal-conv1d | transformer-engine
    """,
    re.VERBOSE,
)
_NO_WHEEL = ("flash-attn", "mamba-ssm", "causal-conv1d")  # PyPI has only their sources
_SKIPS = ("FLASH_ATTENTION_SKIP_CUDA_BUILD", "MAMBA_SKIP_CUDA_BUILD", "CAUSAL_CONV1D_SKIP_CUDA_BUILD")
_TOOLKIT = re.compile(
    r"""
    cuda(?: -toolkit | -nvcc | -compiler | -minimal-build | -command-line-tools )?(?:-\d.*)?
    | nvidia-cuda-toolkit
    | cudatoolkit-dev
    """,
    re.VERBOSE,
)
_INSTALLS_FOLDER = re.compile(
    r"""
    pip[\d.]*\ install\ .*\.(?: / | \[[\w,]+\] )?(?:\s|$)
    | setup\.py\ (?:install|develop|bdist_wheel|build)
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Build:
    """A package that is compiled from source."""

    name: str
    line: int
    step: Step
    settings: dict[str, str]
    sometimes: bool


@once
def compiled(stage: Stage) -> tuple[Build, ...]:
    """Everything that nvcc certainly compiles, from the registry image to the end of the stage."""
    cloned: set[str] = set()
    return tuple(build for step in stage.history for build in (*_by_name(step), *_cloned(step, cloned)))


@once
def _by_name(step: Step) -> tuple[Build, ...]:
    return tuple(_named(step))


def _named(step: Step) -> Iterator[Build]:
    for install in pip_installs(step):
        settings = install.command.settings
        for found in install.requirements:
            if _from_source(install, found.name, found.url) and not any(
                name in settings or name in step.values for name in _SKIPS
            ):
                yield Build(found.name, found.line, step, settings, install.command.sometimes)


def _cloned(step: Step, cloned: set[str]) -> Iterator[Build]:
    """`git clone …/apex`, `cd apex`, `pip install .`, in one RUN or several; adds the names of clones to `cloned`."""
    where = ""
    for command in step.commands:
        texts = command.texts
        if command.program == "git" and "clone" in texts:
            url = next((text for text in texts if "://" in text or text.startswith("git@")), "")
            cloned.add(url.rstrip("/").removesuffix(".git").rpartition("/")[2])
        elif command.program == "cd" and len(texts) > 1:
            where = texts[1].rstrip("/").rpartition("/")[2]
        elif where in cloned and _COMPILED.fullmatch(where.lower()) and _installs_folder(texts):
            yield Build(where.lower(), command.line, step, command.settings, command.sometimes)


def _from_source(install: PipInstall, name: str, url: str) -> bool:
    if url:
        return bool(_COMPILED.fullmatch(name)) and "git" in url and ".whl" not in url
    wheels_elsewhere = install.links or install.extras or install.index or "--only-binary" in install.options
    return name in _NO_WHEEL and not wheels_elsewhere


def _installs_folder(texts: tuple[str, ...]) -> bool:
    return bool(_INSTALLS_FOLDER.search(" ".join(texts)))


def dockerfile(file: Dockerfile) -> Iterator[Fault]:
    for stage in file.stages:
        lacks = base(stage.root.image).lacks_compiler and not _brings_compiler(stage)
        for build in compiled(stage):
            if build.sometimes:
                continue
            if lacks:
                yield NO_COMPILER.at(build.line, f"{build.name} on {stage.root.image}", _devel(stage))
            elif _ASK_TORCH.fullmatch(build.name) and not _has_architectures(build):
                yield NO_ARCHITECTURES.at(build.line, f"{build.name} is compiled, but TORCH_CUDA_ARCH_LIST is not set")


def _has_architectures(build: Build) -> bool:
    """An ARG counts too: it is in the environment of RUN, whatever its value."""
    declared = "TORCH_CUDA_ARCH_LIST" in build.settings or "TORCH_CUDA_ARCH_LIST" in build.step.values
    return declared or _names_architectures(build.step)


def _brings_compiler(stage: Stage) -> bool:
    return any(map(_brings, stage.history))


@once
def _names_architectures(step: Step) -> bool:
    return any("ARCH_LIST" in body.text for body in (step.instruction.body, *(one.body for one in step.instruction.heredocs)))


@once
def _brings(step: Step) -> bool:
    packages = [package.text for install in system_installs(step) for package in install.packages]
    packages += [package.text.rpartition("::")[2] for _, found, _ in conda_installs(step) for package in found]
    named = any(_TOOLKIT.fullmatch(package.split("=")[0]) for package in packages)
    copied = step.name == "COPY" and sources(step) and any("cuda" in word.text for word in step.words)
    return bool(named or copied or re.search(r"cuda_[\d.]{1,20}_.{0,99}\.run|nvcc", step.instruction.body.text))


def _devel(stage: Stage) -> str:
    image = base(stage.root.image)
    name = f" AS {stage.name}" if stage.name else ""
    if image.family in ("cuda", "pytorch"):
        tag = re.sub(r"-(base|runtime)(?=-|$)", "-devel", stage.root.image)
        return f"FROM {tag}{name}"
    return f"FROM nvidia/cuda:12.9.1-devel-ubuntu24.04{name}"
