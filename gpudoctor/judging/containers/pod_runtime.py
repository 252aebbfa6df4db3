"""A pod with an assigned GPU, started by a runtime that does not add it. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.model import Confidence, Finding, Fix, Problem

LOOK = "kubectl exec <pod> -- nvidia-smi -L"
# What the device plugin writes: the UUID of a GPU or a MIG device, its index, or the directory of its mounts.
ASSIGNED = re.compile(r"(?:GPU|MIG)-[0-9a-f]|\d+(?:,\d+)*$|/var/run/nvidia-container-devices")
RUNTIME = re.compile(r"(?m)^[^#\n]*\bruntimes\.[\"']?nvidia[\"']?\s*\]")
DEFAULT = re.compile(r"(?m)^\s*default_runtime_name\s*=\s*[\"']([^\"']+)")
CLASS = Fix(
    "Create the RuntimeClass, once per cluster, if it does not exist",
    "kubectl get runtimeclass nvidia || printf 'apiVersion: node.k8s.io/v1\\nkind: RuntimeClass\\nmetadata: {name: nvidia}\\n"
    "handler: nvidia\\n' | kubectl apply -f -",
    verify="kubectl get runtimeclass",
)
IN_POD = Fix(
    "Set runtimeClassName: nvidia in the pod's spec, here of a deployment; recreate a standalone pod",
    """kubectl patch deployment <chosen_name> -p '{"spec": {"template": {"spec": {"runtimeClassName": "nvidia"}}}}'""",
    risk="disruptive",
    verify=LOOK,
)
OF_K3S = Fix(
    "Or on the host: make it the default for all pods (k3s; on an agent restart k3s-agent)",
    "sudo mkdir -p /etc/rancher/k3s && echo 'default-runtime: nvidia' | sudo tee -a /etc/rancher/k3s/config.yaml && "
    "sudo systemctl restart k3s",
    risk="disruptive",
    verify="sudo grep default_runtime_name /var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    where="host",
    needs=("root",),
)
OF_CONTAINERD = Fix(
    "Or on the host: make NVIDIA's runtime the default for all pods",
    "sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default && sudo systemctl restart containerd",
    risk="disruptive",
    verify="containerd config dump | grep default_runtime_name",
    where="host",
    needs=("root",),
)


def without_runtime(facts: Facts, not_arrived: Problem, visible: str | None, words: str) -> Finding | None:
    """A finding if the device plugin's variable is set in the pod, but nothing else of the GPU is there."""
    if visible is None or not ASSIGNED.match(visible.strip()):
        return None
    evidence: dict[str, object] = {"NVIDIA_VISIBLE_DEVICES": visible}
    assigned = f"{words}, to which the device plugin assigned {visible}"
    configured = node_config(facts)
    if configured is None:
        return of_pods(not_arrived, OF_K3S, OF_CONTAINERD).found(assigned, evidence, confidence=Confidence.LIKELY)
    default = next((found[1] for text in configured.values() if (found := DEFAULT.search(text))), "runc")
    if default == "nvidia":
        return None
    told = f"{assigned}; {', '.join(configured)} on the node defines a runtime nvidia, but pods that name none get {default}"
    problem = of_pods(not_arrived, OF_K3S if any("/k3s/" in path for path in configured) else OF_CONTAINERD)
    return problem.found(told, {**evidence, "files": list(configured), "default_runtime": default})


def of_pods(not_arrived: Problem, *for_all: Fix) -> Problem:
    return replace(
        not_arrived,
        title="The pod has a GPU assigned, but NVIDIA's runtime did not start it",
        why="The device plugin assigned a GPU and set NVIDIA_VISIBLE_DEVICES. Only NVIDIA's runtime reads the variable and adds "
        "devices and libraries. It starts pods that name its RuntimeClass, or all pods if it is containerd's default.",
        fixes=(CLASS, IN_POD, *for_all),
        references=("https://docs.k3s.io/advanced", "https://github.com/k3s-io/k3s/issues/9702"),
    )


def node_config(facts: Facts) -> dict[str, str] | None:
    """The configuration files of the node's containerd if one defines NVIDIA's runtime, else None."""
    files = known(lambda: facts.host.engines.containerd_config, {})
    return files if any(RUNTIME.search(text) for text in files.values()) else None
