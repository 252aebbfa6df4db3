"""How a cluster of a text was set up: the GPU operator against a host's driver, runtimes, taints and versions that do not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.judging.texts.rules.python import is_blind
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

SECOND_DRIVER = Problem(
    id="gpu-operator-installs-second-driver",
    title="The GPU operator installs a driver on nodes that already have one",
    why="The operator's driver pod replaces the loaded module with its own. On a node whose driver was installed on the host it "
    "cannot unload that module while programs use it, and the other pods wait for it.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Tell the operator to use the driver of the hosts (also toolkit.enabled=false if the container toolkit is there)",
            "helm upgrade <chosen_name> nvidia/gpu-operator -n gpu-operator --reuse-values --set driver.enabled=false",
            verify="kubectl get pods -n gpu-operator",
            risk="disruptive",
            kind="manual",
        ),
        Fix(
            "On single nodes: disable the driver pod",
            "kubectl label node <node_name> --overwrite nvidia.com/gpu.deploy.driver=false",
        ),
    ),
    references=("https://github.com/NVIDIA/gpu-operator/issues/327",),
)
NO_DRIVER = Problem(
    id="gpu-operator-takes-driver-for-installed",
    title="The GPU operator takes a node's driver for preinstalled, and it is not",
    why="With the label nvidia.com/gpu.deploy.driver=pre-installed, or driver.enabled=false, the operator starts no driver pod. "
    "Without a driver on the host all of its pods wait in Init.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Remove what is left of an earlier driver from the node, and let the operator install its own",
            "kubectl label node <node_name> nvidia.com/gpu.deploy.driver=true --overwrite",
            verify="kubectl get pods -n gpu-operator -o wide",
            kind="manual",
        ),
        look(
            "Check what on the node looks like a driver", "ls -l /run/nvidia/validations /usr/bin/nvidia-smi; lsmod | grep nvidia"
        ),
        Fix("Otherwise: install the driver on the node"),
    ),
    references=("https://github.com/NVIDIA/gpu-operator/issues/398",),
)
PROBLEMS = (SECOND_DRIVER, NO_DRIVER)

_DRIVER_POD = re.compile(
    r"""
    ^[^\n]*nvidia-driver-daemonset\S*\s+\d+/\d+\s+(?:Init:)?(?:CrashLoopBackOff|Error)\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_IN_USE = re.compile(
    r"""
    already\ loaded\ with\ refcount\ [1-9]
    | driver\ is\ in\ use
    | Could\ not\ unload\ NVIDIA\ driver
    """,
    re.VERBOSE,
)
_WORKS = re.compile(
    r"""
    \bnvidia-smi\b[^.\n]{0,40}\b(?: reports? | works? | fine | shows? | lists )\b
    | \bdrivers?\b[^.\n]{0,30}\b(?: pre-?installed | already\ installed | properly\ installed )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def second_driver(facts: Facts) -> Iterator[Finding]:
    """The driver pod fails, and the driver of the host is loaded and in use."""
    text = "\n".join(passages(facts))
    has_own = known(lambda: facts.nvml.count, 0) > 0 or bool(_WORKS.search(text))
    if _DRIVER_POD.search(text) and has_own and _IN_USE.search(text):
        words = "the driver pod cannot unload the module of the driver that the host already has"
        yield SECOND_DRIVER.found(words, confidence=Confidence.LIKELY)


_PREINSTALLED = re.compile(r"gpu\.deploy\.driver[\"']?\s*[=:]\s*[\"']?pre-installed")
_LACKS = re.compile(
    r"""
    nvidia-smi:\ (?:command\ )?not\ found
    | couldn't\ communicate\ with\ the\ NVIDIA\ driver
    | failed\ to\ run\ command\ .nvidia-smi
    """,
    re.VERBOSE,
)


def no_driver(facts: Facts) -> Iterator[Finding]:
    """The label says that the driver is preinstalled, and the node lacks it."""
    text = "\n".join(passages(facts))
    if _PREINSTALLED.search(text) and _LACKS.search(text) and not known(lambda: facts.nvml.count, 0):
        words = "the node has the label gpu.deploy.driver=pre-installed, and nvidia-smi does not work there"
        yield NO_DRIVER.found(words, confidence=Confidence.LIKELY)


_LIMIT = re.compile(r"(?m)^\s*[\"']?nvidia\.com/(?:gpu|mig-\S+)[\"']?:\s*[\"']?[1-9]")
_SPEC = re.compile(r"(?m)^\s*kind:\s*(?:Pod|Deployment|Job|StatefulSet|DaemonSet)\b")
_CLASS = re.compile(r"(?m)^nvidia\s+nvidia\s+\d+\w+\s*$")
_RUNTIME = re.compile(r"runtimes\.[\"']?nvidia[\"']?\s*\]")
_DEFAULT = re.compile(r"default_runtime_name\s*=\s*[\"']nvidia|default-runtime[\"']?:\s*[\"']?nvidia")
_IN_LOG = re.compile(
    r"""
    ^[^\n]*\bkubectl\s+(?:logs|exec)\b[^\n]*\n(?:False|[^\n]*nvidia-smi[^\n]*not\ found)
    """,
    re.MULTILINE | re.VERBOSE,
)


def pod_names_no_class(facts: Facts) -> Iterator[Finding]:
    """A pod requests a GPU, gets none, and names no RuntimeClass, although NVIDIA's runtime is only an option of the node."""
    text = "\n".join(passages(facts))
    optional = (_CLASS.search(text) or _RUNTIME.search(text)) and not _DEFAULT.search(text)
    is_without = is_blind(facts) or bool(_IN_LOG.search(text))
    if optional and is_without and _SPEC.search(text) and _LIMIT.search(text) and "runtimeClassName" not in text:
        words = "the pod requests a GPU and names no runtimeClassName, and NVIDIA's runtime is not the default one"
        yield facts.problems["k8s-nvidia-runtime-not-chosen"].found(words, confidence=Confidence.LIKELY)


_TAINTS = re.compile(
    r"""
    \[\{[^\]]*\"effect\":\s*\"No(?:Schedule|Execute)\"[^\]]*\}\]
    | (?m:^Taints:[^\n]*$)
    """,
    re.VERBOSE,
)
_KEY = re.compile(
    r"""
    \"key\":\s*\"(?P<json>[^\"]+)\"
    | ^Taints:\s+(?P<row>[\w./-]+)=?\S*:No(?:Schedule|Execute)
    """,
    re.VERBOSE,
)
_TOLERATIONS = re.compile(
    r"""
    tolerations[^\n]*\n\s*(?P<list>\[[^\n]*\]|\[\])
    | (?m:^Tolerations:\s+(?P<rows>[^\n]*(?:\n\s{10,}[^\n]*)*))
    """,
    re.VERBOSE,
)
_PENDS = re.compile(r"\b[Pp]ending\b|FailedScheduling|untolerated")
_EVERY_NODE = re.compile(r"^node\.kubernetes\.io/|^node-role\.kubernetes\.io/")


def taint_not_tolerated(facts: Facts) -> Iterator[Finding]:
    """A node's taint is not among the tolerations of a pending pod."""
    text = "\n".join(passages(facts))
    tolerated = _TOLERATIONS.search(text)
    if not tolerated or not _PENDS.search(text):
        return
    shown = tolerated["list"] or tolerated["rows"] or ""
    rest = text.replace(tolerated[0], "")
    keys = [match["json"] or match["row"] for found in _TAINTS.finditer(rest) for match in _KEY.finditer(found[0])]
    lacking = [key for key in keys if not _EVERY_NODE.search(key) and key not in shown]
    if lacking and '"operator":"Exists"}' not in re.sub(r'"key":"[^"]*",', "KEY", shown.replace(" ", "")).replace("KEY", ""):
        words = f"the node has the taint {lacking[0]}, which the pod does not tolerate"
        yield facts.problems["k8s-taint-not-tolerated"].found(words, {"taint": lacking[0]}, confidence=Confidence.LIKELY)


RULES = (second_driver, no_driver, pod_names_no_class, taint_not_tolerated)
