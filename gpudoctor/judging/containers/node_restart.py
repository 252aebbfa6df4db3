"""A Kubernetes node whose container daemon was not restarted since its configuration got NVIDIA's runtime. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.model import Confidence, Finding, Fix, Problem, Status

OF_K3S = "/rancher/k3s/"
SERVICES = {"containerd": "sudo systemctl restart containerd", "crio": "sudo systemctl restart crio"}
K3S = "sudo systemctl restart k3s || sudo systemctl restart k3s-agent"
ALLOCATABLE = "kubectl get nodes -o jsonpath='{.items[*].status.allocatable}'"
NAMES = {"containerd": "containerd", "crio": "CRI-O"}
PLUGIN = Fix(
    "Then let the device plugin start anew, which looks for the driver only at its start",
    "for label in name=nvidia-device-plugin-ds app=nvidia-device-plugin-daemonset app.kubernetes.io/name=nvidia-device-plugin; "
    "do kubectl delete pod -A -l $label; done",
    risk="disruptive",
    verify=ALLOCATABLE,
)
WHY = (
    "containerd and CRI-O read their configuration only when they start. Until then pods get the old runtime: the device plugin "
    "starts without the driver's libraries, and the node offers no nvidia.com/gpu."
)


def not_restarted(
    facts: Facts, problem: Problem, daemon: str, files: Mapping[str, str], runtime: re.Pattern[str]
) -> Finding | None:
    """Told as a failure where the toolkit came after the start, too: else the runtime may have been there before."""
    named = sorted(path for path, text in files.items() if runtime.search(text))
    if not known(lambda: facts.engines.written_after_start(named, daemon)):
        return None
    status = Status.FAIL if facts.engines.toolkit_newer_than(daemon) else Status.WARN
    restart = K3S if any(OF_K3S in path for path in named) else SERVICES[daemon]
    fixes = (Fix("Restart it (running pods go on)", restart, risk="disruptive", verify=ALLOCATABLE), PLUGIN)
    title = f"Kubernetes' {NAMES[daemon]} was not restarted since it was told of NVIDIA's runtime"
    told = f"{', '.join(named)} has NVIDIA's runtime, and was written after {NAMES[daemon]} had started, which reads it only then"
    about = replace(problem, title=title, why=WHY, status=status, fixes=fixes)
    return about.found(told, {"files": named, "daemon": daemon}, confidence=Confidence.LIKELY)
