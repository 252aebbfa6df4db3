"""Fixes of a container's problem, for the engine that runs it and with its commands.

In a command, <docker> is replaced by the engine's command, and <all_gpus> by the options that give a container all GPUs. A pod is
not started by a command: a line of its spec replaces an option of `docker run`.

https://kubernetes.io/docs/reference/kubectl/generated/
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.sessions import PLACE
from gpudoctor.filling import Written
from gpudoctor.model import Fix

WORDS: Mapping[str, Mapping[str, Any]] = {
    "docker": {"docker": "docker", "all_gpus": Written("--gpus all")},
    "podman": {"docker": "podman", "all_gpus": Written("--device nvidia.com/gpu=all")},
    "nerdctl": {"docker": "nerdctl", "all_gpus": Written("--gpus all")},
}
BY_COMMAND, POD = ("docker", "podman"), ("kubernetes",)
START = "<docker> run --rm <all_gpus> ubuntu nvidia-smi"
BY_CDI = "Enable CDI in the cluster's GPU operator (cdi.enabled=true)"
DELETE = "Delete the pod, so that its controller starts a new one (without a controller: create it again)"
IN_SPEC = "In the pod's spec: {}, then create the pod again"


_TYPED = re.compile(
    rf"""
    ^[ \t]*(?:{PLACE})[ \t]*(?:sudo\ )?
    (?: (?P<podman>podman) | (?P<docker>docker) | (?P<nerdctl>nerdctl) | (?P<kubernetes>(?:\S+\ )?kubectl|oc) )
    \ (?:run|exec|start|compose|create|logs|describe|apply)\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_INSIDE_POD = re.compile(
    r"""
    \bKUBERNETES_(?:SERVICE|PORT)\w*= | /var/run/secrets/kubernetes\.io
    | \b[Ii]n\ (?:a|the|my|our)\ (?:\w+\ )?pod\b | ^kind:\ Pod\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_IN_POD = re.compile(r"\bkubectl\b|\bKubernetes\b|\bpod\b")
_NOT_IN_POD = re.compile(r"<docker>|^sudo mount ")


def of_text(facts: Facts) -> str | None:
    """The engine whose commands were typed in a text; None without one, or with several."""
    said = [passage.text for text in facts.texts.all for passage in text.passages] if facts.texts.alone else []
    found = {match.lastgroup for words in said for match in _TYPED.finditer(words)}
    if not found and any(_INSIDE_POD.search(words) for words in said):
        return "kubernetes"
    return found.pop() if len(found) == 1 else None


def of(fixes: Iterable[Fix], engine: str | None) -> Iterator[Fix]:
    """The fixes for an engine, with its commands; Docker's if the engine is unknown. nerdctl has no daemon, like Podman."""
    fixes = tuple(fixes)
    if engine in POD and any(_IN_POD.search(f"{fix.title} {fix.command}") for fix in fixes):
        fixes = tuple(fix for fix in fixes if not _NOT_IN_POD.search(fix.command))
    name = engine if engine in (*WORDS, *POD) else "docker"
    suited = "podman" if name == "nerdctl" else name
    for fix in fixes:
        if not fix.engines or suited in fix.engines:
            yield replace(fix.filled(WORDS.get(name, WORDS["docker"])), engines=())


def again(
    title: str, run: str, spec: str = "", kubectl: str = "", risk: str = "safe", verify: str = "", on: tuple[str, ...] = ()
) -> tuple[Fix, Fix]:
    """Fixes that start a container again with other options.

    run: the arguments of the engine's command. spec: what to do in a pod's spec, such as "set hostIPC: true". kubectl: the
    arguments that change a workload in the same way, if kubectl supports it.
    """
    if kubectl:
        pod = Fix(title, f"kubectl {kubectl}", "disruptive", verify=verify, on=on, engines=POD)
    else:
        pod = Fix(IN_SPEC.format(spec), verify=verify, on=on, engines=POD)
    return Fix(title, f"<docker> {run}", risk, verify=verify, on=on, engines=BY_COMMAND), pod


def by_cdi(title: str, verify: str = "", on: tuple[str, ...] = ()) -> tuple[Fix, Fix]:
    """Fixes that give a container its GPUs as CDI devices."""
    run = "<docker> run --rm --device nvidia.com/gpu=all <image> nvidia-smi"
    return Fix(title, run, verify=verify, on=on, engines=BY_COMMAND), Fix(BY_CDI, verify=verify, on=on, engines=POD)


def restarted(title: str, verify: str, on: tuple[str, ...] = ()) -> tuple[Fix, Fix]:
    """Fixes that restart the container with the same options; a pod cannot restart itself."""
    by_command = Fix(title, "<docker> restart <container>", "disruptive", verify=verify, on=on, engines=BY_COMMAND)
    pod = "kubectl delete pod <pod> --namespace <namespace>"
    return by_command, Fix(DELETE, pod, "disruptive", verify=verify, on=on, engines=POD)


def restarting_docker(*fixes: Fix, rootless: bool = False, told: str = "") -> Iterator[Fix]:
    """Fixes that Docker applies only after a restart, and Podman immediately. told: the end of Docker's title."""
    restart = "systemctl --user restart docker" if rootless else "sudo systemctl restart docker"
    end = told or ", and restart Docker" + ("" if rootless else " (restarts its containers)")
    for fix in fixes:
        kind = "restart" if fix.kind == "set" else fix.kind
        yield replace(fix, title=fix.title + end, command=f"{fix.command} && {restart}", kind=kind, engines=("docker",))
        yield replace(fix, engines=("podman",))
