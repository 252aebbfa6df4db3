"""Fixes of a container's problem: for the engine that runs it, in its words."""

from __future__ import annotations

import pytest
from each import each

from gpudoctor.fixes import engines
from gpudoctor.model import Fix

VARIABLE = engines.again(
    "With the capability",
    "run --rm <all_gpus> -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE nvidia-smi",
    kubectl="set env deployment/<chosen_name> NVIDIA_DRIVER_CAPABILITIES=compute,utility",
)
LIMIT = engines.again(
    "With a higher limit", "run <all_gpus> --ulimit memlock=-1 --cap-add=IPC_LOCK IMAGE", spec="add the capability IPC_LOCK"
)
RESTART = engines.restarted("On the host: start the container again", "nvidia-smi")
OF_DOCKER = Fix("Switch it on", "sudo true", engines=("docker",))


@each(
    ("fixes", "there"),
    [
        (RESTART, "kubectl delete pod <pod> --namespace <namespace>"),
        (VARIABLE, "kubectl set env deployment/<chosen_name> NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
        (LIMIT, ""),
        (engines.by_cdi("By CDI"), ""),
        ((Fix("Install it", "apt install gcc"),), "apt install gcc"),
    ],
)
def test_in_a_pod(fixes: tuple[Fix, ...], there: str) -> None:
    [fix] = engines.of(fixes, "kubernetes")
    assert (fix.command, fix.engines) == (there, ())


def test_what_kubectl_cannot_set_is_named_for_the_spec() -> None:
    [fix] = engines.of(LIMIT, "kubernetes")
    assert fix.title == "In the pod's spec: add the capability IPC_LOCK, then create the pod again"


def test_podman_has_the_same_commands_and_another_way_to_ask_for_gpus() -> None:
    assert [fix.command for fix in engines.of(RESTART, "podman")] == ["podman restart <container>"]
    [fix] = engines.of(VARIABLE, "podman")
    assert fix.command.startswith("podman run --rm --device nvidia.com/gpu=all -e ")
    [check] = engines.of((Fix("Look", verify=engines.START),), "podman")
    assert check.verify == "podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi"


@pytest.mark.parametrize("engine", [None, "docker", "unknown", "lxc"])
def test_elsewhere_the_words_are_dockers(engine: str | None) -> None:
    assert [fix.command for fix in engines.of((*RESTART, OF_DOCKER), engine)] == ["docker restart <container>", "sudo true"]
    [fix] = engines.of(VARIABLE, engine)
    assert fix.command.startswith("docker run --rm --gpus all -e ")


@pytest.mark.parametrize("engine", ["podman", "nerdctl", "kubernetes"])
def test_what_is_dockers_is_for_no_other(engine: str) -> None:
    assert list(engines.of((OF_DOCKER,), engine)) == []


def test_only_docker_is_restarted() -> None:
    both = tuple(engines.restarting_docker(Fix("Tell it", "sudo tell", "disruptive", kind="set")))
    [docker] = engines.of(both, "docker")
    assert (docker.title, docker.command) == (
        "Tell it, and restart Docker (restarts its containers)",
        "sudo tell && sudo systemctl restart docker",
    )
    assert docker.kind == "restart"
    assert [(fix.title, fix.command, fix.kind) for fix in engines.of(both, "nerdctl")] == [("Tell it", "sudo tell", "set")]
