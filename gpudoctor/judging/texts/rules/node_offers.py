"""What a Kubernetes node offers, against the labels, daemon sets and settings of what offers it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

FOR_JETSON = Problem(
    id="k8s-plugin-searches-jetson",
    title="The device plugin is set to look for the GPU of a Jetson",
    why="With the discovery strategy tegra the plugin offers one GPU, the one inside of a Jetson's chip, and does not count the "
    "cards of a server. The strategy auto uses NVML where there is a driver.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Let the plugin find out which kind of machine it runs on",
            "helm upgrade <chosen_name> nvdp/nvidia-device-plugin -n <namespace> --reuse-values "
            "--set deviceDiscoveryStrategy=auto",
            verify="kubectl get nodes -o jsonpath='{.items[*].status.allocatable}'",
            kind="manual",
        ),
        Fix("Without Helm: delete DEVICE_DISCOVERY_STRATEGY from the daemon set, or set it to nvml"),
    ),
    references=("https://github.com/NVIDIA/k8s-device-plugin/issues/995",),
)
PAUSED = Problem(
    id="k8s-paused-for-mig-change",
    title="The MIG manager stopped halfway and left the node's GPU pods paused",
    why="Before it changes a MIG layout, the manager sets the labels nvidia.com/gpu.deploy.* to paused-for-mig-change, which "
    "removes the device plugin. If it fails meanwhile, it waits for a new value of nvidia.com/mig.config.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Bring the paused pods back, then restart the MIG manager, which applies the layout again",
            "kubectl label node <node_name> --overwrite nvidia.com/gpu.deploy.device-plugin=true "
            "nvidia.com/gpu.deploy.gpu-feature-discovery=true nvidia.com/gpu.deploy.dcgm=true "
            "nvidia.com/gpu.deploy.dcgm-exporter=true && kubectl delete pod -n gpu-operator -l app=nvidia-mig-manager",
            verify="kubectl get nodes -L nvidia.com/mig.config,nvidia.com/mig.config.state",
            risk="disruptive",
            kind="manual",
        ),
        look("Show where the MIG manager stopped", "kubectl logs -n gpu-operator -l app=nvidia-mig-manager --tail=80"),
    ),
    references=("https://github.com/NVIDIA/mig-parted/issues/485",),
)
SELECTS_NONE = Problem(
    id="k8s-plugin-selects-no-node",
    title="The device plugin's daemon set selects no node",
    why="The chart starts the plugin only on nodes with a label of Node Feature Discovery or nvidia.com/gpu.present=true. A "
    "cluster without it has no such node, so no pod is started and no error is reported.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Label the GPU node",
            "kubectl label node <node_name> nvidia.com/gpu.present=true",
            verify="kubectl get ds -A | grep -i device-plugin",
            undo="kubectl label node <node_name> nvidia.com/gpu.present-",
            kind="manual",
        ),
        Fix(
            "Let the chart label all GPU nodes: enable GPU feature discovery, which brings Node Feature Discovery",
            "helm upgrade <chosen_name> nvdp/nvidia-device-plugin -n <namespace> --reuse-values --set gfd.enabled=true",
            verify="kubectl get nodes -L nvidia.com/gpu.present",
            kind="manual",
        ),
        look("Show what the daemon set requires of a node", "kubectl get ds -A -o yaml | grep -A 30 nodeAffinity"),
    ),
    references=("https://github.com/NVIDIA/k8s-device-plugin#deploying-with-gpu-feature-discovery-for-automatic-node-labels",),
)
PROBLEMS = (FOR_JETSON, PAUSED, SELECTS_NONE)

_TEGRA = re.compile(
    r"""
    [\"']?(?:device[-_]?discovery[-_]?strategy)[\"']?\s*[:=]\s*[\"']?tegra\b
    | DEVICE_DISCOVERY_STRATEGY\s+tegra\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_JETSON = re.compile(r"(?i)\bjetson|\borin\b|\bxavier\b|nv_tegra|-tegra\b|\bl4t\b")


def searched_as_jetson(facts: Facts) -> Iterator[Finding]:
    """The plugin looks for a Jetson's GPU, and nvidia-smi lists cards."""
    text, listed = "\n".join(passages(facts)), known(lambda: facts.nvml.count, 0)
    if listed and _TEGRA.search(text) and not _JETSON.search(_TEGRA.sub("", text)):
        words = f"deviceDiscoveryStrategy is tegra, and nvidia-smi lists {listed} GPU{'s' * (listed > 1)}"
        yield FOR_JETSON.found(words, {"listed": listed}, confidence=Confidence.LIKELY)


_IS_PAUSED = re.compile(
    r"""
    nvidia\.com/gpu\.deploy\.(?P<part>[\w-]+)[\"']?\s*[=:]\s*[\"']?paused-for-mig-change
    """,
    re.VERBOSE,
)
_STATE = re.compile(r"nvidia\.com/mig\.config\.state[\"']?\s*[=:]\s*[\"']?(?P<state>\w+)")
_STAYS = re.compile(
    r"""
    \b(?: stuck | hangs? | hours? | days? | forever | never | still | wedged | nothing\ happens | any\ ?more
      | no\ (?:more\ )?gpus? | (?:do|does|did)(?:n't|\ not)\ (?:come|change|go|finish) )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NODE = re.compile(
    r"""
    \bkubectl\b[^\n]*\b(?:get|describe)\ nodes?\ (?P<node>[a-z0-9][\w.-]+)
    | (?m:^Name:\s+(?P<name>\S+)$)
    """,
    re.VERBOSE,
)


def paused(facts: Facts) -> Iterator[Finding]:
    """The pods of a node are paused for a MIG change that does not end."""
    text = "\n".join(passages(facts))
    parts, state = [match["part"] for match in _IS_PAUSED.finditer(text)], _STATE.search(text)
    if parts and state and state["state"] in ("pending", "failed") and (state["state"] == "failed" or _STAYS.search(text)):
        node = _NODE.search(text)
        evidence = {"paused": sorted(set(parts)), **({"node_name": node["node"] or node["name"]} if node else {})}
        words = f"{len(set(parts))} of the node's labels are paused-for-mig-change, and mig.config.state is {state['state']}"
        yield PAUSED.found(words, evidence, confidence=Confidence.LIKELY)


_SINGLE = re.compile(r"(?i)mig[.\-_]?strategy[\"']?\s*[=:]\s*[\"']?single\b")
_CARD = re.compile(r"(?m)^GPU \d+: (?P<name>[^(\n]+)\([^\n]*\n(?P<devices>(?:[ \t]+MIG [^\n]*\n?)*)")
_PROFILE = re.compile(r"MIG (?P<profile>\d+[cg]\.\S+)")
_OF_STRATEGY = (
    Fix(
        "Use the strategy mixed, which offers each profile as a separate resource (nvidia.com/mig-1g.10gb), and request those",
        'kubectl patch clusterpolicies/cluster-policy --type merge -p \'{"spec": {"mig": {"strategy": "mixed"}}}\'',
        verify="kubectl get nodes -o jsonpath='{.items[*].status.allocatable}'",
        risk="disruptive",
        kind="manual",
    ),
    Fix("Keep single, and give all GPUs of the node the same layout (nvidia.com/mig.config=all-1g.10gb)"),
)


def mixed_under_single(facts: Facts) -> Iterator[Finding]:
    """The strategy is single, and the GPUs of the node have different MIG devices."""
    text = "\n".join(passages(facts))
    cards = [frozenset(_PROFILE.findall(match["devices"])) for match in _CARD.finditer(text + "\n")]
    if _SINGLE.search(text) and (len(set(cards)) > 1 or any(len(one) > 1 for one in cards)) and any(cards):
        shown = "; ".join(f"GPU {index}: {', '.join(sorted(one)) or 'no MIG device'}" for index, one in enumerate(cards))
        words = f"the MIG strategy is single, which needs the same layout on all GPUs of the node ({shown})"
        problem = replace(facts.problems["k8s-mig-not-applied"], fixes=_OF_STRATEGY)
        yield problem.found(words, confidence=Confidence.LIKELY)


_DAEMON_SET = re.compile(
    r"""
    ^(?:\S+\ +)?(?P<name>\S*(?:device-plugin|nvdp)\S*)\ +(?P<desired>\d+)\ +\d+\ +\d+\ +\d+\ +\d+\ +<none>
    """,
    re.MULTILINE | re.VERBOSE,
)
_OFFERS = re.compile(r"nvidia\.com/(?:gpu|mig-\S+)[\"']?:\s*[\"']?[1-9]")


def selects_no_node(facts: Facts) -> Iterator[Finding]:
    """kubectl get ds shows that no node should run the device plugin."""
    text = "\n".join(passages(facts))
    rows = {match["name"]: int(match["desired"]) for match in _DAEMON_SET.finditer(text) if "mps-control" not in match["name"]}
    if rows and not any(rows.values()) and not _OFFERS.search(text):
        words = f"the daemon set {next(iter(rows))} has 0 desired pods"
        yield SELECTS_NONE.found(words, {"daemon_set": next(iter(rows))}, confidence=Confidence.LIKELY)


_RESTARTED = re.compile(
    r"""
    \b(?: kubelet | k3s | rke2 | k0s | containerd | docker(?:d|\ daemon)? | cri-?o )\b[^.\n]{0,40}
      \b(?: restart\w* | upgrad\w* | updat\w* | reload\w* )
    | \b(?: restart\w* | upgrad\w* | updat\w* )\b[^.\n]{0,30}\b(?: kubelet | k3s | rke2 | containerd | kubernetes\ version )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FAULT = re.compile(r"(?i)\bxid\b|unhealthy|fallen off|NVML|mismatch")


def is_registration_lost(facts: Facts) -> bool:
    """All GPUs of a node are gone from what it offers, and the text says that the kubelet was restarted."""
    node, text = facts.shown.node or facts.shown.offered, "\n".join(passages(facts))
    counts = [int(number) for number in re.findall(r"(?m)^\s*nvidia\.com/gpu:\s+(\d+)\s*$", text)]
    gone = len(counts) == 2 and counts[0] > 0 == counts[1]
    gone = gone or (bool(node) and node.get("capacity", 0) > 0 == node.get("allocatable", -1))
    return gone and bool(_RESTARTED.search(text)) and not _FAULT.search(text)


def registration_lost(facts: Facts) -> Iterator[Finding]:
    if is_registration_lost(facts):
        words = "the node has GPUs in its capacity and offers 0 after a restart of the kubelet: the plugin must register again"
        yield facts.problems["k8s-plugin-not-registered"].found(words, confidence=Confidence.LIKELY)


RULES = (searched_as_jetson, paused, mixed_under_single, selects_no_node, registration_lost)
