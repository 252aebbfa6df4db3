"""Variables with which an image requests GPUs and parts of the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.lint.bases import base
from gpudoctor.lint.budget import once
from gpudoctor.lint.dockerfile import Dockerfile, Setting, Stage
from gpudoctor.lint.installs import PipInstall, Requirement, pip_installs
from gpudoctor.lint.model import Fault, Rule

_DOCUMENTATION = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"

HIDDEN = Rule(
    id="visible-devices-hides-gpus",
    title="NVIDIA_VISIBLE_DEVICES gives the container no GPU",
    why="The values void, none and the empty value request no GPU from the NVIDIA runtime. Only --gpus overrides them. With "
    "--runtime=nvidia, or in Kubernetes without a GPU request, the container starts without a GPU.",
    write="ENV NVIDIA_VISIBLE_DEVICES=all",
    references=(_DOCUMENTATION,),
    status="fail",
)
CAPABILITIES = Rule(
    id="driver-capabilities-without-compute",
    title="NVIDIA_DRIVER_CAPABILITIES does not include CUDA (compute)",
    why="The toolkit mounts only the libraries of the listed capabilities. libcuda.so.1 belongs to compute. Without it, "
    "nvidia-smi works, but every CUDA program reports that it finds no driver.",
    write="ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    references=(_DOCUMENTATION,),
)
UNSET = Rule(
    id="visible-devices-unset",
    title="NVIDIA_VISIBLE_DEVICES is not set in an image that uses CUDA",
    why="Only NVIDIA's images set it. Without it, --gpus all works, but --runtime=nvidia gives the container no GPU.",
    write="ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    references=(_DOCUMENTATION,),
    status="info",
)
BAKED = Rule(
    id="cuda-visible-devices-baked",
    title="CUDA_VISIBLE_DEVICES is fixed in the image",
    why="The numbers refer to the GPUs of the container, which always start at 0. On another machine, or with another "
    "choice of GPUs, the program sees fewer GPUs than the container has, or none.",
    write="# nothing; choose the GPUs at start: docker run --gpus '\"device=0,1\"'",
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars",),
)
REQUIRE = Rule(
    id="require-check-disabled",
    title="The image disables the check of the host's driver",
    why="NVIDIA_DISABLE_REQUIRE lets the container start on drivers that are too old for its CUDA. Instead of a clear message "
    "at the start, an error appears later, deep in a program.",
    write="# nothing; if you really need it: docker run -e NVIDIA_DISABLE_REQUIRE=1",
    references=(_DOCUMENTATION,),
)
RULES = (HIDDEN, CAPABILITIES, UNSET, BAKED, REQUIRE)

_CUDA_INDEX = re.compile(r"download\.pytorch\.org/whl/(?:nightly/|test/)?cu\d+|\+cu\d+")


def dockerfile(file: Dockerfile) -> Iterator[Fault]:
    for stage in file.stages:
        if stage in file.shipped:
            for setting in (setting for step in stage.steps if step.name == "ENV" for setting in step.settings):
                yield from _setting(setting, stage)
    yield from _unset(file.last)


def _setting(setting: Setting, stage: Stage) -> Iterator[Fault]:
    name, value = setting.name, setting.value.strip().lower()
    if name == "NVIDIA_VISIBLE_DEVICES" and value in ("", "void", "none"):
        if _uses_cuda(stage):  # an image that needs no GPU may say so
            yield HIDDEN.at(setting.line, f"{name}={setting.written}")
    elif name == "NVIDIA_DRIVER_CAPABILITIES" and value and not {"compute", "all"} & set(value.split(",")):
        if "$" not in value and _uses_cuda(stage):
            yield CAPABILITIES.at(setting.line, f"{name}={setting.written}", f"ENV {name}=compute,{value}")
    elif name == "CUDA_VISIBLE_DEVICES" and "$" not in value and value != "all":
        none = value in ("", "-1", "none", "nodevfiles")
        if none and not _uses_cuda(stage):
            return  # a CPU image may say so
        yield BAKED.at(setting.line, f"{name}={setting.written}" + (" hides every GPU" if none else ""))
    elif name == "NVIDIA_DISABLE_REQUIRE" and value in ("1", "true", "t") and _uses_cuda(stage):
        yield REQUIRE.at(setting.line, f"{name}={setting.written}")


@once
def _uses_cuda(stage: Stage) -> bool:
    return base(stage.root.image).has_cuda or any(
        _for_gpu(install, requirement)
        for step in stage.history
        for install in pip_installs(step)
        for requirement in install.requirements
    )


def _for_gpu(install: PipInstall, requirement: Requirement) -> bool:
    if requirement.name == "torch":
        return not install.index.rstrip("/").endswith("/cpu") and not requirement.specifier.endswith("+cpu")
    return requirement.name.startswith(("cupy-", "onnxruntime-gpu", "nvidia-cu"))


def _unset(stage: Stage) -> Iterator[Fault]:
    """Reported once, at the first install that is certainly meant for a GPU."""
    if base(stage.root.image).family != "plain" or "NVIDIA_VISIBLE_DEVICES" in stage.values:
        return
    for step in stage.history:
        for install in pip_installs(step):
            written = " ".join((install.index, *install.extras, *(found.specifier for found in install.requirements)))
            if _CUDA_INDEX.search(written) and not install.command.sometimes:
                yield UNSET.at(stage.line, f"{stage.root.image} does not set it, but CUDA wheels are installed")
                return
