"""The container has the GPUs of its host that it was meant to have.

What it means
A container sees the GPUs that its engine put into it. An old CDI specification, a variable or a device list of its own can
make that fewer than the host has.

How it is judged
The GPUs that NVML lists inside against those that it lists on the host, by their UUIDs, where gpudoctor looked at both
(check --image, check --container). What was asked for decides how many there should be.

Known exceptions
Where only a shell could be asked, device nodes are counted. MIG instances are not counted one by one.

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
    title="The container has fewer GPUs than it asked for",
    why="The GPUs are healthy on the host, but this container was not given all of them: a CDI specification was written "
    "before they were there, or a list of devices names only some.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "On the host: write the CDI specification anew, then start the container anew",
            "sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml",
            verify="nvidia-ctk cdi list",
            where="host",
            needs=("root",),
        ),
        Fix("Start the container anew with all GPUs", "gpudoctor run --image <image> --gpus all -- nvidia-smi -L"),
    ),
    references=("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    start = request(facts)
    there, inside = gpu_count(facts.host), gpu_count(facts)
    wanted = asked_for(start["gpus"], there)
    if inside < wanted:
        yield FEWER.found(
            f"host sees {there} GPU{'s' * (there != 1)}, container {inside}"
            + (f" of the {wanted} that were asked for" if wanted != there else ""),
            {"missing": missing(facts), "image": start["image"], "asked_for": start["gpus"], "mode": start["mode"]},
        )


def request(facts: Facts) -> Mapping[str, Any]:
    """What the container was started with; a Skip where it was given none, or was not started by us or before us."""
    _ = facts.host
    start: Mapping[str, Any] = facts.replies.value("container-start")
    if start["mode"] == "none" or start["gpus"] == "none":
        raise Skip("no GPU was asked for")
    return start


def asked_for(gpus: str, there: int) -> int:
    """How many GPUs a request means: all, a number of them, or a list."""
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
)
