"""NVIDIA's entrypoint does more than print a banner."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.lint.bases import base
from gpudoctor.lint.compose import Compose
from gpudoctor.lint.dockerfile import Dockerfile
from gpudoctor.lint.model import Fault, Rule
from gpudoctor.lint.purpose import wants_none

REPLACED = Rule(
    id="ngc-entrypoint-replaced",
    title="The entrypoint of an NGC image is replaced",
    why="/opt/nvidia/nvidia_entrypoint.sh checks the host's driver and enables forward compatibility. Without it, a program "
    "may fail with 'the provided PTX was compiled with an unsupported toolchain' on a driver that could run it.",
    write='ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh", "my-program"]',
    references=(
        "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
        "https://github.com/triton-inference-server/server/tree/main/docker",
    ),
)
RULES = (REPLACED,)
_SCRIPT = "nvidia_entrypoint.sh"


def dockerfile(file: Dockerfile) -> Iterator[Fault]:
    for stage in file.stages:
        if stage not in file.shipped or base(stage.root.image).family != "ngc":
            continue
        for step in stage.steps:
            words = [word.text for word in step.words]
            if step.name == "ENTRYPOINT" and not any(_SCRIPT in word for word in words):
                listed = "".join(f', "{word}"' for word in words)
                yield _replaced(step.line, stage.root.image, words, f'ENTRYPOINT ["/opt/nvidia/{_SCRIPT}"{listed}]')


def compose(file: Compose) -> Iterator[Fault]:
    for service in file.services:
        entrypoint = service.node.at("entrypoint")
        words = list(filter(None, [*entrypoint.text.split(), *(item.text for item in entrypoint)]))
        needs_it = service.base.family == "ngc" and not wants_none(service)
        if entrypoint and needs_it and not any(_SCRIPT in word for word in words):
            yield _replaced(entrypoint.line, service.image.text, words, f"    command: {' '.join(words)[:60]}")


def _replaced(line: int, image: str, words: list[str], write: str) -> Fault:
    """A script may call the entrypoint itself; its content is unknown here."""
    if any(word.endswith(".sh") for word in words):
        return REPLACED.at(line, f"{image} has its own entrypoint, which the script may call", write, "info")
    return REPLACED.at(line, f"{image} has its own entrypoint", write)
