"""While an image is built, no GPU, driver or libcuda is available."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.lint.bases import base
from gpudoctor.lint.budget import once
from gpudoctor.lint.dockerfile import Dockerfile, Stage, Step
from gpudoctor.lint.model import Fault, Rule
from gpudoctor.lint.python_code import needs_gpu
from gpudoctor.lint.shell import Command

USED = Rule(
    id="gpu-used-in-build",
    title="A GPU is used while the image is built",
    why="BuildKit gives RUN no GPU and no driver. The command fails, and with it the build.",
    write="# nothing in RUN; check when the container starts: docker run --rm --gpus all IMAGE nvidia-smi",
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/351", "https://github.com/moby/buildkit/issues/1436"),
    status="fail",
)
RULES = (USED,)

_PYTHON = re.compile(r"python[\d.]*")
_HEREDOC = re.compile(r"<<-?['\"]?[A-Za-z_]\w*['\"]?")
_PYTHON_READS = re.compile(r"(?:^|[\s/])python[\d.]*(?:\s+-[uBEIs]*)*\s*$")
_TOOLS = ("nvidia-smi", "deviceQuery", "nvidia-debugdump")


def dockerfile(file: Dockerfile) -> Iterator[Fault]:
    for stage in file.stages:
        for step in stage.steps:
            if "nvidia.com/gpu" in step.instruction.flags.get("device", ""):
                continue  # a build that gets a GPU through CDI
            for line, said in (*_commands(step, stage), *_scripts(step)):
                if stage not in file.built:
                    yield USED.at(line, f"{said}; the last stage does not need this one", status="info")
                elif base(stage.root.image).family == "jetson":  # where the NVIDIA runtime is often the builder's default
                    yield USED.at(line, f"{said}; it needs the NVIDIA runtime as the default, without BuildKit", status="info")
                else:
                    yield USED.at(line, said)


def _commands(step: Step, stage: Stage) -> Iterator[tuple[int, str]]:
    for command in step.commands:
        if _certain(command) and (said := _uses(command)) and not _is_replaced(command, step, stage):
            yield command.line, said


def _certain(command: Command) -> bool:
    return not command.forgiven and not command.sometimes


def _uses(command: Command) -> str:
    if command.program in _TOOLS:
        return f"RUN {' '.join(command.texts)[:60]}"
    options = list(command.texts[1:])
    at = next((place for place, text in enumerate(options) if not text.startswith("-") or text in ("-c", "-m")), len(options))
    if _PYTHON.fullmatch(command.program) and options[at : at + 1] == ["-c"] and len(options) > at + 1:
        return _in_python(options[at + 1])
    return ""


def _is_replaced(command: Command, step: Step, stage: Stage) -> bool:
    """Whether an earlier step put another program of that name into the image."""
    if command.program not in _TOOLS:
        return False
    return _first_written(stage).get(command.program, step.line) < step.line


@once
def _first_written(stage: Stage) -> dict[str, int]:
    """Tool -> the first line that names a file of its name."""
    found: dict[str, int] = {}
    for step in stage.history:
        for name in re.findall(rf"/({'|'.join(_TOOLS)})\b", step.instruction.body.text):
            found.setdefault(name, step.line)
    return found


def _scripts(step: Step) -> Iterator[tuple[int, str]]:
    """Python programs in a heredoc: those that python reads, not those that are written to a file."""
    certain = all(_certain(command) for command in step.commands if _PYTHON.fullmatch(command.program))
    starts = _HEREDOC.finditer(step.instruction.body.text)
    for found, heredoc in zip(starts, step.instruction.heredocs, strict=False):
        before = re.split(r"[;&|\n]", step.instruction.body.text[: found.start()])[-1]
        if certain and _PYTHON_READS.search(before) and (said := _in_python(heredoc.body.text)):
            yield step.line, said


def _in_python(program: str) -> str:
    statement = needs_gpu(program)
    return f"Python runs: {statement[:60]}" if statement else ""
