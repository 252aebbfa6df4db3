"""Fixes inside a container: in the words of the engine that runs it."""

from __future__ import annotations

import pytest

from gpudoctor.fixes.engines import for_engine
from gpudoctor.model import Fix

RESTART = Fix("On the host: start the container again", "docker restart CONTAINER", risk="disruptive", verify="nvidia-smi")
VARIABLE = Fix("With the capability", "docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE nvidia-smi")


@pytest.mark.parametrize(
    ("command", "there"),
    [
        ("docker restart CONTAINER", "kubectl delete pod POD --namespace NAMESPACE"),
        (VARIABLE.command, "kubectl set env deployment/NAME NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
        ("docker run --gpus all --memory=81559m IMAGE", "kubectl set resources deployment/NAME --limits=memory=81559Mi"),
        ("docker run --gpus all --cpus=8 IMAGE", "kubectl set resources deployment/NAME --limits=cpu=8"),
        ("docker run --rm --device nvidia.com/gpu=all IMAGE nvidia-smi", ""),
        ("apt install gcc libc6-dev", "apt install gcc libc6-dev"),
    ],
)
def test_in_a_pod(command: str, there: str) -> None:
    assert for_engine(Fix("Do it", command), "kubernetes").command == there


def test_options_without_a_word_of_kubectl_are_named_for_the_spec() -> None:
    fix = for_engine(Fix("Do it", "docker run --gpus all --ulimit memlock=-1 --cap-add=IPC_LOCK IMAGE"), "kubernetes")
    assert fix.title == "In the pod's spec, then create it again: what docker run calls --ulimit --cap-add=IPC_LOCK"


def test_podman_has_the_same_commands_and_another_way_to_ask_for_gpus() -> None:
    assert for_engine(RESTART, "podman").command == "podman restart CONTAINER"
    assert for_engine(VARIABLE, "podman").command.startswith("podman run --rm --device nvidia.com/gpu=all -e ")


@pytest.mark.parametrize("engine", [None, "docker", "unknown", "lxc"])
def test_elsewhere_the_line_stays(engine: str | None) -> None:
    assert for_engine(RESTART, engine) == RESTART
