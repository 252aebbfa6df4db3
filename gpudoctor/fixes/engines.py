"""Fixes for a container in the words of the engine that runs it: their lines are Docker's as they stand.

https://kubernetes.io/docs/reference/kubectl/generated/
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoctor.model import Fix

POD = "Delete the pod: its controller starts it anew (one without a controller: create it again)"
BY_CDI = "For good, for who runs the cluster: let the GPU operator give devices by CDI (cdi.enabled=true)"
IN_SPEC = "In the pod's spec, then create it again: what docker run calls {}"


def for_engine(fix: Fix, engine: str | None) -> Fix:
    if not re.match(r"docker (run|restart|compose)\b", fix.command):
        return fix
    if engine == "kubernetes":
        return for_kubernetes(fix)
    return replace(fix, command=of_podman(fix.command), title=of_podman(fix.title)) if engine == "podman" else fix


def for_kubernetes(fix: Fix) -> Fix:
    """Nothing inside a pod can start it again, and its options are lines of its spec."""
    if fix.command.startswith("docker restart"):
        return replace(fix, title=POD, command="kubectl delete pod POD --namespace NAMESPACE", risk="disruptive", needs=())
    if changed := _change(fix.command):
        return replace(fix, command=f"kubectl {changed}", risk="disruptive", needs=())
    told = BY_CDI if "nvidia.com/gpu" in fix.command else IN_SPEC.format(" ".join(_options(fix.command)))
    return replace(fix, title=told, command="", risk="safe", needs=(), undo="")


def _change(command: str) -> str:
    """Of a workload, for the options that kubectl has words for."""
    settings = " ".join(re.findall(r"-e (\S+=\S+)", command))
    limits = [f"memory={size}Mi" for size in re.findall(r"--memory=(\d+)m\b", command)]
    limits += [f"cpu={count}" for count in re.findall(r"--cpus=(\d+)", command)]
    if settings:
        return f"set env deployment/NAME {settings}"
    return f"set resources deployment/NAME --limits={','.join(limits)}" if limits else ""


def _options(command: str) -> list[str]:
    usual = ("--rm", "--gpus", "-it")
    return [option for option in re.findall(r"(?<=\s)-{1,2}[a-z][\w-]*(?:=\S+)?", command) if option not in usual] or ["--gpus"]


def of_podman(text: str) -> str:
    return re.sub(r"\bdocker\b", "podman", text).replace("--gpus all", "--device nvidia.com/gpu=all").replace("Docker", "Podman")
