"""The container has all the GPUs that were requested for it.

What it means
A container sees the GPUs that its engine gave it. An outdated CDI specification, an environment variable or a device list can
make that fewer than the host has.

How it is judged
The GPUs that NVML lists inside are compared by UUID with those on the host. This requires that gpudoctor examined both (check
--image, check --container). The request decides how many GPUs there should be.

Known exceptions
If only the container's shell could be used, device nodes are counted instead. MIG instances are not counted individually.

References
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.judging.containers.beside_host import gpu_count
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip

FEWER = Problem(
    id="container-sees-fewer-gpus",
    title="The container has fewer GPUs than were requested",
    why="The host has these GPUs, but this container was not given all of them: a CDI specification was written before they "
    "were added, or a device list names only some.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "On the host: regenerate the CDI specification, then recreate the container",
            "sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml",
            verify="nvidia-ctk cdi list",
            where="host",
            needs=("root",),
        ),
        Fix("Recreate the container with all GPUs", "gpudoctor run --image <image> --gpus all -- nvidia-smi -L"),
    ),
    references=("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    start = request(facts)
    there, inside = gpu_count(facts.host), gpu_count(facts)
    wanted = asked_for(start["gpus"], there)
    if inside < wanted:
        yield FEWER.found(
            f"the host has {there} GPU{'s' * (there != 1)}, the container {inside}"
            + (f" of the {wanted} requested" if wanted != there else ""),
            {"missing": missing(facts), "image": start["image"], "asked_for": start["gpus"], "mode": start["mode"]},
        )


def request(facts: Facts) -> Mapping[str, Any]:
    """What the container was started with; Skip if no GPU was requested, or if it is unknown how it was started."""
    _ = facts.host
    start: Mapping[str, Any] = facts.replies.value("container-start")
    if start["mode"] == "none" or start["gpus"] == "none":
        raise Skip("no GPU was requested")
    return start


def asked_for(gpus: str, there: int) -> int:
    """The number of GPUs that a request means: all, some (at least one), or a comma-separated list."""
    if gpus == "all":
        return there
    if gpus in ("some", "void"):
        return 1
    return min(there, len([name for name in gpus.split(",") if name]))


def missing(facts: Facts) -> list[str]:
    """The host's GPUs that NVML does not list inside."""
    try:
        inside = {gpu.uuid for gpu in facts.nvml.gpus}
        return [f"GPU {gpu.index} {gpu.name} {gpu.uuid}" for gpu in facts.host.nvml.gpus if gpu.uuid not in inside]
    except Skip:
        return []


def summary(facts: Facts) -> str:
    inside, there = gpu_count(facts), gpu_count(facts.host)
    return f"{inside} of the host's {there} GPU{'s' * (there != 1)}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(FEWER,),
    needs=("container-gpu-access",),
    tags=("docker",),
)
