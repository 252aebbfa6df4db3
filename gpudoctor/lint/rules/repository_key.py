"""The key with which NVIDIA signed its package repositories until April 2022."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.lint.dockerfile import Dockerfile, Step
from gpudoctor.lint.model import Fault, Rule
from gpudoctor.lint.shell import Word

ROTATED = Rule(
    id="cuda-repository-key-rotated",
    title="The old signing key of NVIDIA's repository is downloaded",
    why="NVIDIA has signed with another key since April 2022. apt-get update fails with 'NO_PUBKEY A4B469963BF863CC'.",
    write="RUN curl -fsSLO https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/cuda-keyring_1.1-1_all.deb "
    "&& dpkg -i cuda-keyring_1.1-1_all.deb",
    references=(
        "https://developer.nvidia.com/blog/updating-the-cuda-linux-gpg-repository-key/",
        "https://github.com/NVIDIA/nvidia-docker/issues/1631",
    ),
    status="fail",
)
RULES = (ROTATED,)
# The machine-learning repository is still signed with it: only its use for /compute/cuda is wrong.
_OLD = re.compile(r".*/compute/cuda/repos/.*7fa2af80\.pub|(?:0x)?7fa2af80", re.IGNORECASE)


def dockerfile(file: Dockerfile) -> Iterator[Fault]:
    for stage in file.stages:
        for step in stage.steps:
            words = list(step.words) if step.name == "ADD" else _fetched(step)
            yield from (ROTATED.at(word.line, word.text) for word in words if _OLD.fullmatch(word.text))


def _fetched(step: Step) -> list[Word]:
    """The words of all commands except those that remove the key."""
    return [word for command in step.commands if "del" not in command.texts for word in command.words]
