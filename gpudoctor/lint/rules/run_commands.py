"""Containers started by `docker run` in scripts, Makefiles and Markdown, and by a devcontainer.json: what they lack."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.lint.compose import Compose
from gpudoctor.lint.devcontainer import Devcontainer
from gpudoctor.lint.model import Fault, Rule
from gpudoctor.lint.purpose import commands
from gpudoctor.lint.rules import compose_limits, compose_requests, compose_runtime
from gpudoctor.lint.rules.image_tags import MISSING, wrong
from gpudoctor.lint.run_options import Run
from gpudoctor.lint.scripts import Script
from gpudoctor.lint.yaml_lines import NOTHING

_DOCKER = "https://docs.docker.com/reference/cli/docker/container/run/#gpus"

UNQUOTED = Rule(
    id="gpus-devices-unquoted",
    title="--gpus names several GPUs without inner quotes",
    why="docker splits the value at its commas, and takes what follows the first one for a number of GPUs: 'cannot set both "
    "Count and DeviceIDs on device request'. Double quotes that reach docker keep the list together.",
    write="""--gpus '"device=0,1"'""",
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1257", _DOCKER),
    status="fail",
)
NONE = Rule(
    id="gpus-counts-none",
    title="--gpus 0 requests no GPU",
    why="A number is how many GPUs the container gets, not which one. With 0 it starts without a GPU, and without a message.",
    write="--gpus device=0",
    references=(_DOCKER, "https://github.com/moby/moby/blob/master/daemon/nvidia_linux.go"),
    status="fail",
)
AFTER_IMAGE = Rule(
    id="run-option-after-image",
    title="An option of docker run is written after the image",
    why="What follows the image is the program and its arguments. The engine never sees the option, and the program fails with "
    "an unknown option or 'executable file not found'.",
    write="docker run --gpus all <image>",
    references=("https://docs.docker.com/engine/containers/run/#general-form",),
    status="fail",
)
RULES = (UNQUOTED, NONE, AFTER_IMAGE)

_REQUEST = {"docker": "--gpus all", "nvidia-docker": "--gpus all"}
_WRITE = {
    compose_limits.SHM.id: "--shm-size=8g",
    compose_limits.IGNORED.id: "--ipc=host",
    compose_limits.MEMLOCK.id: "--ulimit memlock=-1 --ulimit stack=67108864",
    compose_runtime.RUNTIME_ALONE.id: "-e NVIDIA_VISIBLE_DEVICES=all",
    compose_runtime.RENUMBERED.id: "-e CUDA_VISIBLE_DEVICES=0",
}
_WORDS = {
    "neither shm_size nor ipc: host is set": "neither --shm-size nor --ipc=host is given",
    "without ulimits.memlock": "without --ulimit memlock",
    "and ipc: host": "and --ipc=host",
    "shm_size ": "--shm-size ",
}
_SHOWS = ("--help", "-h", "--version", "-V", "-c", "nvidia-smi", "nvcc")
_MISPLACED = re.compile(r"--gpus=(?:all|device=.*) | --runtime=nvidia | --shm-size=.+ | --ipc=host", re.VERBOSE)


def script(file: Script) -> Iterator[Fault]:
    for run in file.runs:
        misplaced = list(_after_image(run))
        yield from misplaced
        yield from _of_options(run)
        for fault in _as_service(run):
            if not (misplaced and fault.rule is compose_requests.NOT_REQUESTED):
                yield replace(fault, message=_said(fault), write=_written(fault, run))
        if found := wrong(run.service.image.text):
            image = run.service.image
            yield MISSING.at(image.line, f"{image.text}: {found.why}", f"nvidia/cuda:{found.tag}", found.status)


def devcontainer(file: Devcontainer) -> Iterator[Fault]:
    run = file.run
    for fault in (*_of_options(run), *_as_service(run)):
        if fault.rule not in (compose_limits.SHM, compose_requests.NOT_REQUESTED):  # which its own rules judge
            yield replace(fault, message=_said(fault), write=f'"runArgs": {json.dumps(shlex.split(_written(fault, run)))}')


def _of_options(run: Run) -> Iterator[Fault]:
    word = run.gpus
    if word is None or "$" in word.text:
        return
    if re.fullmatch(r"device=[^,\"']+,[^=]+", word.text) and run.engine != "podman":
        yield UNQUOTED.at(word.line, f"--gpus {word.text}", f"""--gpus '"{word.text}"'""")
    elif word.text == "0":
        yield NONE.at(word.line, f"--gpus {word.text}")


def _after_image(run: Run) -> Iterator[Fault]:
    if not run.after or run.service.asks_for_gpu:
        return
    words = " ".join(word.text for word in run.after[:2]).replace("--gpus ", "--gpus=").split()
    if words and _MISPLACED.fullmatch(words[0]) and run.after[0].text.startswith("--"):
        image = run.service.image.text
        yield AFTER_IMAGE.at(run.after[0].line, f"{words[0]} after {image}", f"{run.service.name} {words[0]} {image}")


def _as_service(run: Run) -> Iterator[Fault]:
    """What the rules for services find; a run has no `deploy`."""
    file, is_short = Compose((run.service,), NOTHING), _is_short(run)
    yield from (fault for fault in compose_limits.compose(file) if not (is_short and fault.rule is compose_limits.SHM))
    yield from compose_runtime.compose(file)
    # Triton's documentation starts it without a GPU on purpose; a reference that ends in a colon has a placeholder as its tag.
    unsure = run.service.base.repository == "nvidia/tritonserver" or run.service.image.text.endswith(":")
    if run.service.complete and not is_short and not unsure:
        yield from compose_requests.requested(run.service)


def _is_short(run: Run) -> bool:
    """Whether it only shows something: `nvidia-smi`, `--version`, `python -c …`."""
    words = [word.text for word in run.after[:3]]
    return any(word in _SHOWS for word in words) or any(
        command.program in ("nvidia-smi", "nvcc") for command in commands(run.service)
    )


def _said(fault: Fault) -> str:
    """The message with the words of options."""
    message = fault.message
    for key, option in _WORDS.items():
        message = message.replace(key, option)
    return message


def _written(fault: Fault, run: Run) -> str:
    if fault.rule.id in (UNQUOTED.id, NONE.id):
        return fault.write
    if fault.rule is compose_runtime.OVERRIDDEN:
        return f"""--gpus '"device={run.service.environment["NVIDIA_VISIBLE_DEVICES"].text}"'"""
    return _WRITE.get(fault.rule.id, _REQUEST.get(run.engine, "--device nvidia.com/gpu=all"))
