"""Fixes of a node's container runtime, with the services and files of its Kubernetes distribution.

k3s, RKE2, MicroK8s and k0s bring their containerd: they neither read /etc/containerd nor have a unit containerd.

https://docs.k3s.io/advanced#nvidia-container-runtime-support
https://docs.rke2.io/reference/linux_agent_config
https://microk8s.io/docs/addon-gpu
https://docs.k0sproject.io/stable/runtime/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.model import Fix

_NAMES = re.compile(
    r"""
    (?P<rke2>rancher/rke2|\brke2(?:-agent|-server)?\b|\+rke2r\d)
    | (?P<k3s>rancher/k3s|\bk3s(?:-agent)?\b|\+k3s\d)
    | (?P<microk8s>\bmicrok8s\b(?!-like))
    | (?P<crio>\bcrio\b|\bCRI-O\b|runtime\ handler\ \S+\ from\ runtime\ list\ map)
    | (?P<k0s>/(?:etc|lib)/k0s\b|\bk0s(?:worker|controller)?\b|\+k0s\b)
    """,
    re.VERBOSE,
)
_RESTART = {
    "k3s": "(sudo systemctl restart k3s || sudo systemctl restart k3s-agent)",
    "rke2": "sudo systemctl try-restart rke2-server rke2-agent",
    "microk8s": "sudo snap restart microk8s",
    "k0s": "(sudo systemctl restart k0sworker || sudo systemctl restart k0scontroller)",
    "crio": "sudo systemctl restart crio",
}
_DEFAULT = {
    name: f"sudo mkdir -p /etc/rancher/{name} && echo 'default-runtime: nvidia' | sudo tee -a /etc/rancher/{name}/config.yaml"
    for name in ("k3s", "rke2")
}
_OF_K0S = "sudo nvidia-ctk runtime configure --runtime=containerd --config=/etc/k0s/containerd.d/nvidia.toml"
_LOOK = {
    "k3s": "sudo grep -n nvidia /var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "rke2": "sudo grep -n nvidia /var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "microk8s": "grep -n nvidia /var/snap/microk8s/current/args/containerd.toml",
    "k0s": "grep -n nvidia /etc/k0s/containerd.d/nvidia.toml",
    "crio": "grep -rn nvidia /etc/crio",
}
_CONFIGURES = re.compile(
    r"""
    sudo\ nvidia-ctk\ runtime\ configure\ --runtime=containerd(?P<default>\ --set-as-default)?
    \ &&\ sudo\ systemctl\ restart\ containerd
    """,
    re.VERBOSE,
)
_RESTARTS = re.compile(r"sudo systemctl restart containerd(?! docker)")
_ASKS = re.compile(r"containerd config dump \| grep[^|&;)]*")


def kubernetes(facts: Facts) -> str:
    """k3s, rke2, microk8s or k0s, or crio, which the GPU's runtime is registered with; "" for others, and for several."""
    paths = known(lambda: list(facts.host.engines.containerd_config or facts.engines.containerd_config), list[str]())
    said = [passage.text for text in facts.texts.all for passage in text.passages] if facts.texts.alone else []
    found = {match.lastgroup for words in (*paths, *said) for match in _NAMES.finditer(words)}
    return str(found.pop()) if len(found) == 1 else ""


def spoken(fixes: Iterable[Fix], cluster: str) -> Iterator[Fix]:
    """A fix that edits a file of another containerd is left out."""
    for fix in fixes:
        if not cluster or "containerd" not in fix.command + fix.verify:
            yield fix
            continue
        command = _CONFIGURES.sub(lambda match: _configured(cluster, bool(match["default"])), fix.command)
        command = _RESTARTS.sub(_RESTART[cluster], command)
        command = _ASKS.sub(_LOOK[cluster], command) if fix.kind != "read" else command
        if fix.kind == "read" or "/etc/containerd/" not in command:
            yield replace(fix, command=_bare(command), verify=_ASKS.sub(_LOOK[cluster], fix.verify))


def _configured(cluster: str, as_default: bool) -> str:
    """k3s and RKE2 find the toolkit when they start; MicroK8s has an addon."""
    if cluster == "microk8s":
        return "sudo microk8s enable nvidia"
    if cluster == "crio":
        return f"sudo nvidia-ctk runtime configure --runtime=crio{' --set-as-default' * as_default} && {_RESTART[cluster]}"
    if cluster == "k0s":
        return f"{_OF_K0S}{' --set-as-default' * as_default} && {_RESTART[cluster]}"
    return f"{_DEFAULT[cluster]} && {_RESTART[cluster]}" if as_default else _RESTART[cluster]


def _bare(command: str) -> str:
    """Without the parentheses around a whole command."""
    return command[1:-1] if re.fullmatch(r"\([^()]*\)", command) else command
