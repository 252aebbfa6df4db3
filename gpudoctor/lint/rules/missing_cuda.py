"""Packages that need the system's CUDA, in an image without CUDA. torch includes its own and is not among them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.lint.bases import Base, base
from gpudoctor.lint.budget import once
from gpudoctor.lint.dockerfile import Dockerfile, Stage, Step, sources
from gpudoctor.lint.installs import Requirement, conda_installs, pip_installs, system_installs
from gpudoctor.lint.model import Fault, Rule

MISSING = Rule(
    id="cuda-libraries-missing",
    title="A package needs the CUDA libraries, which the image does not have",
    why="Unlike torch, this wheel does not include the CUDA libraries. It installs without an error and fails when it is "
    "used: 'libcublas.so.12: cannot open shared object file', or it silently computes on the CPU.",
    write='RUN pip install "cupy-cuda12x[ctk]"',
    references=(
        "https://docs.cupy.dev/en/stable/install.html",
        "https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html",
    ),
)
OTHER = Rule(
    id="cupy-for-another-cuda",
    title="The cupy wheel is for another CUDA than the image's",
    why="A cupy wheel loads the libraries of one CUDA major version, by the number in their names. The image has another one.",
    write="RUN pip install cupy-cuda12x",
    references=("https://docs.cupy.dev/en/stable/install.html",),
    status="fail",
)
RULES = (MISSING, OTHER)

_CUPY = re.compile(r"cupy-cuda(\d\d)[x\d]*")
# With one of these, pip also installs the libraries, or a package that loads them.
_BRINGS = re.compile(
    r"""
    torch
    | nvidia-.+-cu\d+ | nvidia-(?:cublas|cudnn|cuda).*
    | cuda-toolkit
    | tensorrt.* | jax.* | cudf.* | cuml.* | rapids.* | paddlepaddle-gpu
    """,
    re.VERBOSE,
)
_SYSTEM = re.compile(
    r"""
    cuda(?!-keyring)(?:-.*)?
    | libcu(?:blas|dnn|da|rand|fft|sparse|solver).* | libcudart.*
    | nvidia-cuda-.*
    | tensorrt.* | cudnn.*
    """,
    re.VERBOSE,
)
_CONDA = re.compile(r"cuda.*|cudatoolkit.*|cudnn.*|pytorch.*|cupy.*|onnxruntime-gpu.*")


def dockerfile(file: Dockerfile) -> Iterator[Fault]:
    for stage in file.stages:
        image = base(stage.root.image)
        for step in stage.steps if stage in file.shipped else ():  # other stages may be copied into an image with CUDA
            found = [one for install in pip_installs(step) if not install.command.sometimes for one in install.requirements]
            for requirement in found:
                yield from _judged(requirement, image, stage)


def _judged(requirement: Requirement, image: Base, stage: Stage) -> Iterator[Fault]:
    cupy = _CUPY.fullmatch(requirement.name)
    if (
        cupy
        and image.family in ("cuda", "ngc")
        and image.cuda
        and image.cuda[0] != int(cupy[1])
        and "ctk" not in requirement.extras
    ):
        message = f"{requirement.name} on {stage.root.image}"
        if not _brings_libraries(stage):
            yield OTHER.at(requirement.line, message, f"RUN pip install cupy-cuda{image.cuda[0]}x")
    elif image.family == "plain" and _needs_system(requirement) and not _brings_libraries(stage):
        with_libraries = {"onnxruntime-gpu": "onnxruntime-gpu[cuda,cudnn]"}.get(requirement.name, f"{requirement.name}[ctk]")
        yield MISSING.at(requirement.line, f"{requirement.name} on {stage.root.image}", f'RUN pip install "{with_libraries}"')


def _needs_system(requirement: Requirement) -> bool:
    alone = _CUPY.fullmatch(requirement.name) or requirement.name == "onnxruntime-gpu"
    return bool(alone) and not re.search(r"ctk|cuda|cudnn", requirement.extras)


@once
def _brings_libraries(stage: Stage) -> bool:
    return any(map(_brings, stage.history))


@once
def _brings(step: Step) -> bool:
    installs = pip_installs(step)
    if any(_BRINGS.fullmatch(requirement.name) for install in installs for requirement in install.requirements):
        return True
    if any(_SYSTEM.fullmatch(package.text) for install in system_installs(step) for package in install.packages):
        return True
    found = (package.text.rpartition("::")[2] for _, packages, _ in conda_installs(step) for package in packages)
    if any(map(_CONDA.fullmatch, found)):
        return True
    if any("-r" in install.options or "--requirement" in install.options for install in installs):
        return True  # the content of that file is unknown
    return bool(sources(step) or re.search(r"cuda[\w.-]{0,99}\.(?:run|deb)", step.instruction.body.text))
