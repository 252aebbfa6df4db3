"""Nodes of a cluster that start nothing new while a job or pod waits, or whose GPUs are not the configured ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding, Fix

_ROW = re.compile(
    r"""
    ^\s*(?P<name>[a-z0-9][\w.-]*)\ +(?P<states>(?:Not)?Ready(?:,SchedulingDisabled)?)\ +\S+\ +\w+\ +v\d
    """,
    re.MULTILINE | re.VERBOSE,
)
_CORDONED = "SchedulingDisabled"
_NO_NODES = ("control-plane", "master")  # roles whose nodes run no jobs
_PENDING = re.compile(
    r"""
    ^\s*(?:\S+\ +)?[a-z][\w.-]*\ +0/\d+\ +Pending\ +\d
    | \b(?:stay|remain|keep|is|are|stuck)\w*\ (?:in\ )?[Pp]ending\b
    """,
    re.MULTILINE | re.VERBOSE,
)
_SINFO = re.compile(
    r"""
    ^\s*\S+ \ +up \ +\S+ \ +\d+
    \ +(?P<state> down | drain(?:ed|ing)? | drng | fail(?:ing)? | maint | boot | idle | mix(?:ed)? | alloc(?:ated)? | comp )
    [*~\#!%$@^-]?
    \ +(?P<nodes>\S+)\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_UNUSABLE = ("down", "drain", "drained", "draining", "drng", "fail", "failing", "maint")
_WAITS = re.compile(
    r"""
    (?: ^|\s )PD\s+0:00 | \((?:Resources|Priority|ReqNodeNotAvail[^)]*)\)
    | \bpending\b | \b(?:not|never|n't)\s+start | \bwait(?:s|ing)?\b | \bqueued?\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def cordoned(facts: Facts) -> Iterator[Finding]:
    """A pod is pending, and kubectl get nodes shows nodes that take no new ones and none that does."""
    text = "\n".join(each for each in passages(facts) if _CORDONED in each or _PENDING.search(each))
    rows = [row for row in _ROW.finditer(text) if not any(role in row[0] for role in _NO_NODES)]
    closed = [row["name"] for row in rows if _CORDONED in row["states"]]
    if closed and len(closed) == len(rows) and _PENDING.search(text):
        words = f"kubectl get nodes shows SchedulingDisabled for {', '.join(closed[:4])}, and a pod is pending"
        yield facts.problems["k8s-node-cordoned"].found(words, {"nodes": closed}, confidence=Confidence.LIKELY)


def closed_node(facts: Facts) -> Iterator[Finding]:
    """`kubectl describe node` shows a node that takes no new pods, or not this one, and a pod is pending."""
    text = "\n".join(passages(facts))
    if not _PENDING.search(text):
        return
    taint = _TAINT.search(text)
    if _UNSCHEDULABLE.search(text):
        words = "the node is unschedulable (cordoned), and a pod is pending"
        yield facts.problems["k8s-node-cordoned"].found(words, confidence=Confidence.LIKELY)
    elif taint and "olerations" not in text:
        words = f"the node has the taint {taint[1]}, and a pod is pending"
        yield facts.problems["k8s-taint-not-tolerated"].found(words, {"taint": taint[1]}, confidence=Confidence.LIKELY)


_UNSCHEDULABLE = re.compile(
    r"""
    ^\s*["']?unschedulable["']?:\s+true\b
    | node\.kubernetes\.io/unschedulable[:=]\S*NoSchedule
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_TAINT = re.compile(r"(?m)^\s*Taints:\s+(\S+:NoSchedule)\s*$")


def down_in_slurm(facts: Facts) -> Iterator[Finding]:
    """A job waits, and sinfo shows a node that the text names, or all nodes, as down or drained."""
    for text in passages(facts):
        rows = list(_SINFO.finditer(text))
        lost = [row for row in rows if row["state"] in _UNUSABLE]
        rest = _SINFO.sub("", text)
        named = [row for row in lost if row["nodes"] in rest]
        if lost and (len(lost) == len(rows) or named) and _WAITS.search(rest):
            shown = named[0] if named else lost[0]
            words = f"sinfo shows {shown['nodes']} as {shown['state']}, and a job waits"
            yield facts.problems["slurm-node-unusable"].found(words, {"node_name": shown["nodes"]}, confidence=Confidence.LIKELY)
            return


_PLUGIN_SET = re.compile(
    r"""
    ^\s*(?:(?P<namespace>[a-z][\w-]*)\ +)?(?P<name>[a-z][\w.-]*device-plugin(?!\S*mps-control)[\w.-]*)
    \ +0\ +0\ +0\ +0\ +0\ +(?P<selector>[\w./-]+=\S*)\ +\d+\w+\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_NAMESPACE = re.compile(r"\bkubectl\b[^\n]*?\s(?:-n|--namespace)[ =]([\w-]+)")


def selected_nowhere(facts: Facts) -> Iterator[Finding]:
    """The device plugin's daemonset wants no pod: no node has the labels of its selector."""
    text = "\n".join(passages(facts))
    found = _PLUGIN_SET.search(text)
    if not found or found["selector"] in _PLUGIN_SET.sub("", text):
        return
    label = found["selector"].split(",")[0]
    words = f"the daemonset {found['name']} has DESIRED 0: no node has the label {found['selector']}"
    evidence = {"node_label": label}
    if namespace := found["namespace"] or next((match[1] for match in _NAMESPACE.finditer(text)), None):
        evidence["namespace"] = namespace
    problem = facts.problems["k8s-selector-matches-no-node"]
    problem = replace(problem, title=NOWHERE, why=WHY_NOWHERE, fixes=LABELS)
    yield problem.found(words, evidence, confidence=Confidence.LIKELY)


NOWHERE = "No node has the label that NVIDIA's device plugin selects"
WHY_NOWHERE = (
    "The daemonset starts its pod only on nodes with the labels of its NODE SELECTOR. Without the plugin a node offers no "
    "nvidia.com/gpu. GPU feature discovery, or an administrator, sets the labels."
)
LABELS = (
    Fix(
        "Label each node that has a GPU",
        "kubectl label node <node_name> <node_label>",
        verify="kubectl get nodes -o jsonpath='{.items[*].status.allocatable}'",
        kind="set",
    ),
    Fix(
        "If Helm installed the plugin: let it install GPU feature discovery, which labels the nodes",
        "helm upgrade <chosen_name> nvdp/nvidia-device-plugin -n <namespace> --reuse-values --set gfd.enabled=true",
        verify="kubectl get ds -n <namespace>",
        kind="manual",
    ),
    Fix("Show which labels the nodes have", "kubectl get nodes --show-labels", kind="read"),
)
_IN_USE = re.compile(r"Could not unload NVIDIA driver kernel modules, driver is in use")


def driver_in_use(facts: Facts) -> Iterator[Finding]:
    """The operator's driver container finds the host's own driver loaded, and cannot unload it."""
    text = "\n".join(passages(facts))
    if not is_driver_in_use(facts):
        return
    count = re.search(r"already loaded with refcount (\d+)", text)
    words = "the host itself has loaded a driver, which is in use" + (f" ({count[1]} times)" if count else "")
    namespace = next((match[1] for match in _NAMESPACE.finditer(text)), None)
    problem = replace(facts.problems["gpu-operator-not-ready"], title=OF_HOST, why=WHY_OF_HOST, fixes=USE_OF_HOST)
    yield problem.found(words, {"namespace": namespace} if namespace else {}, confidence=Confidence.LIKELY)


def is_driver_in_use(facts: Facts) -> bool:
    return any(_IN_USE.search(text) for text in passages(facts))


OF_HOST = "The GPU operator's driver container cannot unload the host's driver"
WHY_OF_HOST = (
    "A driver is installed on the node, and programs such as a display server use it. The operator's container has to unload it "
    "before it can load its own."
)
USE_OF_HOST = (
    Fix(
        "Keep the host's driver: disable the operator's",
        "helm upgrade gpu-operator nvidia/gpu-operator -n <namespace> --reuse-values --set driver.enabled=false",
        verify="kubectl get pods -n <namespace>",
        kind="manual",
    ),
    Fix(
        "Use the operator's driver: remove the one of the node, after stopping what uses it (list these programs)",
        "sudo fuser -v /dev/nvidia*",
        where="host",
        kind="read",
        needs=("root",),
    ),
)
_CONFIGURED = re.compile(
    r"""
    config-only\ GPU [^\n]*\n (?:[^\n]*\n){0,3}?
    [^\n]* GRES\[gpu\]\ Type:(\S+)\ Count:\d+ [^\n]* File:\(null\)
    """,
    re.VERBOSE,
)
_DETECTED = re.compile(
    r"""
    autodetected\ GPUs\ are\ being\ ignored [^\n]*\n
    [^\n]* GRES\[gpu\]\ Type:(\S+)[ ]
    """,
    re.VERBOSE,
)


def another_type(facts: Facts) -> Iterator[Finding]:
    """Slurm ignores the GPUs that it detects, because slurm.conf names another type, which must be a part of theirs."""
    for text in passages(facts):
        wanted, found = _CONFIGURED.search(text), _DETECTED.search(text)
        if wanted and found and wanted[1].lower() not in found[1].lower():
            words = f"Slurm is configured for the type {wanted[1]}, and detects {found[1]}"
            problem = replace(facts.problems["slurm-gpu-not-configured"], title=OTHER_TYPE, why=WHY_OTHER_TYPE, fixes=TYPES)
            yield problem.found(words, {"configured": wanted[1], "detected": found[1]}, confidence=Confidence.LIKELY)
            return


OTHER_TYPE = "Slurm's configuration names another type of GPU than the node has"
WHY_OTHER_TYPE = (
    "The type in slurm.conf and gres.conf must be the detected name or a part of it. Slurm drops a configured GPU of another "
    "type because it has no device file, and ignores the detected ones."
)
TYPES = (
    Fix(
        "In slurm.conf (and gres.conf): write a part of the detected name as the type, then restart slurmctld and slurmd",
        "grep -inE '^NodeName|Gres' /etc/slurm/slurm.conf /etc/slurm/gres.conf",
        verify="sudo slurmd -G",
        kind="read",
    ),
    Fix("Leave the type out of the node's line: Gres=gpu:N"),
)
RULES = (cordoned, closed_node, down_in_slurm, selected_nowhere, driver_in_use, another_type)
