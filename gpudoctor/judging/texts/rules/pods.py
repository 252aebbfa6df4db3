"""Pods in a text: what their specification leaves out, although their program or the device plugin needs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.containers import pod_runtime
from gpudoctor.judging.containers.access import for_engine
from gpudoctor.judging.texts.rules.python import is_blind
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding, Fix

_POD = re.compile(
    r"""
    ^\s*kind:\ *(?:Pod|Job|Deployment|StatefulSet|PyTorchJob)\s*$
    | \bkubectl\s[^\n]*\bpods?\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_LIMITS = re.compile(r"(?m)^\s*[Ll]imits:\s*$|\"limits\":\s*\{")
_NAMED = re.compile(r"nvidia\.com/[\w.-]+[\"']?:\s*[\"']?\d")
_BY_OTHER_MEANS = re.compile(r"resourceClaims|\bclaims:|privileged:\s*true|NVIDIA_VISIBLE_DEVICES")
_PLUGIN_SPEC = re.compile(r"(?m)^\s*(?:- )?image:\s*\S*k8s-device-plugin\b")
_DEFAULT_CLASS = Fix(
    "Or set runtimeClassName: nvidia in the device plugin's daemonset",
    "kubectl -n kube-system patch ds nvidia-device-plugin-daemonset "
    """-p '{"spec": {"template": {"spec": {"runtimeClassName": "nvidia"}}}}'""",
    verify="kubectl get nodes -o jsonpath='{.items[*].status.allocatable}'",
)


def pod_without_request(facts: Facts) -> Iterator[Finding]:
    """The limits of the only pod name no GPU, and its program sees none."""
    text = "\n".join(passages(facts))
    is_asked = _NAMED.search(text) or _BY_OTHER_MEANS.search(text)
    if is_blind(facts) and _POD.search(text) and _LIMITS.search(text) and not is_asked:
        words = "the pod's limits name no nvidia.com/gpu, and its program sees no GPU"
        problem = for_engine("kubernetes", facts.problems["container-no-gpus-flag"])
        yield problem.found(words, confidence=Confidence.LIKELY)


def no_runtime_class(facts: Facts) -> Iterator[Finding]:
    """The pod names a RuntimeClass that the cluster does not have."""
    text = "\n".join(passages(facts))
    wanted = _CLASS.search(text)
    if wanted and _NO_CLASSES.search(text):
        words = f"the pod's runtimeClassName is {wanted[1]}, and kubectl get runtimeclass lists none"
        yield facts.problems["k8s-runtimeclass-missing"].found(words, {"name": wanted[1]}, confidence=Confidence.LIKELY)


_CLASS = re.compile(r"(?m)^\s*runtimeClassName:\s*[\"']?(nvidia[\w-]*)")
_NO_CLASSES = re.compile(r"\bget runtimeclass\S*[^\n]*\n\s*No resources found")


def plugin_without_runtime(facts: Facts) -> Iterator[Finding]:
    """The device plugin names no RuntimeClass, and the node's default runtime does not add the driver's libraries."""
    text = "\n".join(passages(facts))
    default = pod_runtime.DEFAULT.search(re.sub(r"(?m)^\d+[:-]", "", text))
    if default is None or "nvidia" in default[1] or "runtimeClassName" in text or not _PLUGIN_SPEC.search(text):
        return
    if known(lambda: facts.nvml.count, 0) and not _NAMED.search(text):
        words = f"the device plugin's spec has no runtimeClassName, and containerd's default runtime is {default[1]}"
        problem = facts.problems["k8s-device-plugin-no-nvml"]
        on_node = replace(
            pod_runtime.OF_CONTAINERD, title="On each GPU node: make NVIDIA's runtime containerd's default for all pods"
        )
        problem = replace(problem, fixes=(on_node, _DEFAULT_CLASS))
        yield problem.found(words, {"default_runtime": default[1]}, confidence=Confidence.LIKELY)


_CRICTL = re.compile(r"\"defaultRuntimeName\":\s*\"(?P<name>\w+)\"")
_REGISTERED = re.compile(r"containerd\.runtimes\.[\"']?nvidia\b|\"nvidia\":\s*\{")
NOT_USED = "The device plugin's pod does not use NVIDIA's runtime"


def plugin_beside_runtime(facts: Facts) -> Iterator[Finding]:
    """containerd knows NVIDIA's runtime, its default is another, and the device plugin runs and offers nothing."""
    text, node = "\n".join(passages(facts)), facts.shown.node
    default = _CRICTL.search(text)
    if default is None or "nvidia" in default["name"] or not _REGISTERED.search(text) or "runtimeClassName" in text:
        return
    if known(lambda: facts.nvml.count, 0) and "device-plugin" in text and not (node and any(node.values())):
        words = f"containerd's default runtime is {default['name']}, and the device plugin's pod names no runtimeClassName"
        problem = replace(facts.problems["k8s-nvidia-runtime-not-chosen"], title=NOT_USED, fixes=(_DEFAULT_CLASS,))
        yield problem.found(words, {"default_runtime": default["name"]}, confidence=Confidence.LIKELY)


RULES = (plugin_beside_runtime, pod_without_request, no_runtime_class, plugin_without_runtime)
