"""LD_LIBRARY_PATH and the linker's configuration decide which libcuda is found first."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.lint.bases import base
from gpudoctor.lint.dockerfile import Dockerfile, Setting, Stage, Step
from gpudoctor.lint.model import Fault, Rule

_HOST_PATHS = "/usr/local/nvidia/lib"

OVERWRITTEN = Rule(
    id="library-path-overwritten",
    title="LD_LIBRARY_PATH of the base image is overwritten",
    why="The base image points it to its own libraries and, on some clusters, to the host's driver (/usr/local/nvidia). "
    "Without the old value, libcuda.so.1 or the image's libraries may not be found.",
    write="ENV LD_LIBRARY_PATH=/opt/mine/lib:$LD_LIBRARY_PATH",
    references=(
        "https://gitlab.com/nvidia/container-images/cuda/-/blob/master/README.md",
        "https://cloud.google.com/kubernetes-engine/docs/how-to/gpus#cuda",
    ),
)
COMPAT = Rule(
    id="compat-on-library-path",
    title="The forward compatibility libcuda is forced on every host",
    why="If cuda-compat is first in the search path, it is used even if the host's driver is newer (error 803), and also on "
    "GeForce GPUs, which do not support it (error 804). The container toolkit enables it only where it is needed.",
    write="# nothing; leave .../cuda/compat out of LD_LIBRARY_PATH and of /etc/ld.so.conf.d",
    references=(
        "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
        "https://github.com/gpustack/gpustack/issues/4678",
        "https://github.com/llm-d/llm-d/issues/706",
    ),
)
STUBS = Rule(
    id="stubs-on-library-path",
    title="CUDA's stub libraries are found at run time",
    why="The libcuda.so in .../stubs is empty: it is only for linking on systems without a driver. A program that opens "
    "libcuda.so by that name loads it and gets error 34, 'CUDA driver is a stub library'. The linker reads LIBRARY_PATH.",
    write="ENV LIBRARY_PATH=/usr/local/cuda/lib64/stubs",
    references=("https://github.com/NVIDIA/nvidia-docker/issues/76", "https://github.com/xmake-io/xmake/issues/4686"),
)
CONFIGURATION = Rule(
    id="linker-configuration-overwritten",
    title="/etc/ld.so.conf is replaced",
    why="Its line 'include /etc/ld.so.conf.d/*.conf' is lost, and with it every folder that the image and the container toolkit "
    "added, such as that of the driver's libraries.",
    write="RUN echo /opt/mine/lib > /etc/ld.so.conf.d/mine.conf && ldconfig",
    references=("https://man7.org/linux/man-pages/man8/ldconfig.8.html",),
)
RULES = (OVERWRITTEN, COMPAT, STUBS, CONFIGURATION)


def dockerfile(file: Dockerfile) -> Iterator[Fault]:
    for stage in file.stages:
        if stage in file.shipped:
            for step in stage.steps:
                yield from _environment(step, stage)
                yield from _configuration(step)


def _environment(step: Step, stage: Stage) -> Iterator[Fault]:
    for setting in step.settings:
        if step.name != "ENV" or setting.name != "LD_LIBRARY_PATH":
            continue
        parts = setting.value.split(":")
        last = stage.values.get("LD_LIBRARY_PATH", "")  # a later ENV may have removed what was only for the build
        if any(part.rstrip("/").endswith("/stubs") for part in parts) and "/stubs" in last:
            yield STUBS.at(setting.line, f"LD_LIBRARY_PATH={setting.written}", _without(parts, "/stubs"))
        if any("/compat" in part and "cuda" in part for part in parts) and "/compat" in last:
            yield COMPAT.at(setting.line, f"LD_LIBRARY_PATH={setting.written}", _without(parts, "/compat"))
        if _loses(setting, step, stage):
            message = f"LD_LIBRARY_PATH={setting.written} drops the value of {stage.root.image}"
            yield OVERWRITTEN.at(setting.line, message, f"ENV LD_LIBRARY_PATH={setting.written.strip(chr(34))}:$LD_LIBRARY_PATH")


def _without(parts: list[str], unwanted: str) -> str:
    kept = [part for part in parts if unwanted not in part and part]
    return f"ENV LD_LIBRARY_PATH={':'.join(kept)}" if any("$" not in part for part in kept) else "# nothing; delete the line"


def _loses(setting: Setting, step: Step, stage: Stage) -> bool:
    """Whether this is the first setting after the base image's, and does not keep its value."""
    if "LD_LIBRARY_PATH" in step.values or "LD_LIBRARY_PATH" in setting.written or "$" in setting.value:
        return False  # the value is kept, or an unknown variable may keep it
    return base(stage.root.image).has_cuda and _HOST_PATHS not in setting.value


def _configuration(step: Step) -> Iterator[Fault]:
    for command in step.commands:
        text = " ".join(command.texts)
        for sign, target in command.writes:
            if sign == ">" and target == "/etc/ld.so.conf" and "include" not in text and command.words:
                yield CONFIGURATION.at(command.line, "> /etc/ld.so.conf")
            if target.startswith("/etc/ld.so.conf") and "/compat" in text and "cuda" in text:
                yield COMPAT.at(command.line, f"{target} names the folder of cuda-compat")
