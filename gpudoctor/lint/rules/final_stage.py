"""An image that contains the compilers although it compiles nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.lint.bases import base
from gpudoctor.lint.dockerfile import Dockerfile, Step
from gpudoctor.lint.installs import pip_installs
from gpudoctor.lint.model import Fault, Rule

DEVEL = Rule(
    id="devel-base-in-final-stage",
    title="The final image contains the CUDA compilers but does not use them",
    why="A devel image is four to five gigabytes larger than the runtime one. Nothing here compiles CUDA code, and torch "
    "wheels include their own libraries.",
    write="FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04",
    references=("https://nvidia.github.io/container-wiki/toolkit/container-images.html",),
    status="info",
)
RULES = (DEVEL,)

# Anything that may compile, at build time or at run time: then nothing is reported.
_COMPILES = re.compile(
    r"""
    # compilers, builds, sources
    nvcc | cmake | \bmake\b | ninja | gcc | g\+\+ | clang | build-essential | cargo | bazel | meson | setup\.py
    | git\+ | git\ clone | CUDA_HOME | ARCH | \.sh\b
    # packages that compile kernels
    | deepspeed | vllm | sglang | flash | xformers | apex | bitsandbytes | cupy | numba | triton | tensorrt | llama | onnx
    # tools of the toolkit
    | nsight | compute-sanitizer | gdb
    """,
    re.IGNORECASE | re.VERBOSE,
)


def dockerfile(file: Dockerfile) -> Iterator[Fault]:
    stage = file.last
    image = base(stage.root.image)
    if image.family != "cuda" or image.flavour != "devel" or any(_may_compile(step) for step in stage.history):
        return
    installs = [install for step in stage.history for install in pip_installs(step)]
    if any(install.of("torch", "jax", "tensorflow") for install in installs):
        root = stage.root
        alias = f" AS {root.name}" if root.name else ""
        runtime = root.image.replace("-devel", "-runtime")
        yield DEVEL.at(root.line, f"{root.image}, but nothing is compiled", f"FROM {runtime}{alias}")


def _may_compile(step: Step) -> bool:
    text = step.instruction.body.text + "".join(heredoc.body.text for heredoc in step.instruction.heredocs)
    if step.name == "RUN":
        listed = any("-r" in install.options or not install.requirements for install in pip_installs(step))
        return listed or bool(_COMPILES.search(text))
    return step.name == "ENV" and "CUDA_HOME" in text
