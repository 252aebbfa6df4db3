"""One device of a text against others of its kind: power limits, links of network adapters, peer access, CPUs near a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.places import is_slow
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

NARROW_ADAPTER = Problem(
    id="network-adapter-link-narrow",
    title="A network adapter's PCIe link is narrower or slower than the card",
    why="The link between the adapter and the CPU limits its speed: eight lanes of PCIe 3 carry about 55 Gb/s, sixteen of PCIe 3 "
    "or eight of PCIe 4 about 100 Gb/s. The slot has fewer lanes, or the card or a riser does not make contact.",
    action=Action.REPLACE_HARDWARE,
    status=Status.WARN,
    fixes=(
        Fix(
            "Compare what the card, the slot above it and the link support",
            "sudo lspci -vv -s <device_address> | grep -E 'LnkCap:|LnkSta:'; lspci -tv",
            kind="read",
            needs=("root",),
        ),
        Fix("Power off and move the card to a slot with all its lanes, or seat it and its riser again"),
        Fix("If the slot is shared: change its bifurcation or lane setting in the firmware (x8x8 to x16)"),
    ),
    references=("https://enterprise-support.nvidia.com/s/article/understanding-pcie-configuration-for-maximum-performance",),
)
NO_PEERS = Problem(
    id="geforce-without-peer-access",
    title="These GeForce GPUs have no direct access to each other's memory",
    why="The driver does not offer peer-to-peer access over PCIe on GeForce cards since the Ada generation, and most earlier "
    "ones have it only over an NVLink bridge. All transfers cross the host's memory, so tensor parallelism gains little.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Split the model so that less crosses between the GPUs: pipeline instead of tensor parallelism, or one replica on "
            "each GPU"
        ),
        Fix(
            "Make the way over the host's memory fast: both cards in slots with all their lanes, at the same CPU",
            "nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv",
            kind="read",
        ),
    ),
    references=("https://docs.nvidia.com/deploy/nvidia-smi/index.html",),
)
SMALL_BAR = Problem(
    id="bar1-not-resized",
    title="One GPU's BAR1 window is far smaller than those of the others",
    why="Resizable BAR maps all memory of a GPU. It needs room below the bridge of its slot, which the firmware reserves at "
    "boot. For this GPU it reserved only the small default, so peer-to-peer access and large mappings do not work with it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Show the window of each GPU, and what it supports",
            "sudo lspci -vvs <device_address> | grep -A 3 Resizable",
            kind="read",
            needs=("root",),
        ),
        Fix("In the firmware: enable Above 4G Decoding and Resizable BAR for all slots, and update it; or use another slot"),
    ),
    references=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/510",),
)
ONLY_PCIE = Problem(
    id="gpus-exchange-over-pcie-only",
    title="The GPUs have no NVLink, and exchange data over PCIe alone",
    why="In data-parallel training every step sends all gradients to the other GPU. Over PCIe this takes as long as the "
    "computation saves, if the model is large and the batch small.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Send less often: larger batches, gradient accumulation, or bf16 gradients"),
        Fix("If the cards have NVLink connectors: mount a bridge between them", "nvidia-smi nvlink -s", kind="read"),
    ),
    references=("https://github.com/huggingface/transformers/issues/9371",),
)
PROBLEMS = (NARROW_ADAPTER, NO_PEERS, SMALL_BAR, ONLY_PCIE)
NEAR = 0.93  # of a limit
LOWER = 0.8  # of the limit of the others
BUSY = 80  # percent

_ADAPTER = re.compile(
    r"""
    ^(?P<address>(?:[\da-f]{4}:)?[\da-f]{2}:[\da-f]{2}\.\d)\ (?:Infiniband|Ethernet|Network)\ controller:\ (?P<name>[^\n]+)\n
    (?: (?![\da-f:]+\.\d\ )[^\n]*\n )*?
    [ \t]*LnkCap:[^\n]*Speed\ (?P<most_speed>[\d.]+)GT/s,\ Width\ x(?P<most>\d+)[^\n]*\n
    (?: (?![\da-f:]+\.\d\ )[^\n]*\n )*?
    [ \t]*LnkSta:[^\n]*Speed\ (?P<speed>[\d.]+)GT/s[^,\n]*,\ Width\ x(?P<lanes>\d+)
    """,
    re.MULTILINE | re.VERBOSE,
)
_FAST = re.compile(
    r"""
    mellanox|connectx|bluefield|infiniband|omni-path|\bMT\d{4,}|E810
        |BCM57[56]|thor|pensando
    """,
    re.IGNORECASE | re.VERBOSE,
)
_MEASURED = re.compile(r"(?i)\bGb/s|\bGbps|\bGbit|\bGB/s|bandwidth|throughput|\bbusbw\b")


def lower_limit(facts: Facts) -> Iterator[Finding]:
    """Of several busy GPUs of one kind, one works at a power limit far below that of the others."""
    gpus = [gpu for gpu in known(lambda: facts.nvml.gpus, ()) if _limit(gpu) and any(_kind(gpu))]
    for gpu in gpus:
        others = [_limit(other) for other in gpus if other is not gpu and _kind(other) == _kind(gpu)]
        if len(others) < 2 or known(lambda gpu=gpu: gpu.default_power_limit_watts, None):  # type: ignore[misc]
            continue
        usual, own = median(others), _limit(gpu)
        draw = known(lambda gpu=gpu: gpu.get("PowerUsage"), 0) / 1000  # type: ignore[misc]
        load = known(lambda gpu=gpu: gpu.get("UtilizationRates.gpu"), BUSY)  # type: ignore[misc]
        if own < LOWER * usual and load >= BUSY and draw >= NEAR * own and len(set(others)) == 1:
            words = f"GPU {gpu.index} works at its power limit of {own:.0f} W, and the other GPUs have {usual:.0f} W"
            evidence = {"address": gpu.selector, "enforced_watts": round(own), "default_watts": round(usual)}
            yield facts.problems["sw-power-cap-low-limit"].found(words, evidence, gpu.index, Confidence.LIKELY)


def _limit(gpu: Gpu) -> float:
    return known(lambda: gpu.enforced_power_limit_watts, 0.0) or 0.0


def _kind(gpu: Gpu) -> tuple[str, int]:
    """The name, which a narrow table does not have, and the memory."""
    return known(lambda: gpu.name, "") or "", known(lambda: gpu.memory_total_mib, 0) or 0


def narrow_adapter(facts: Facts) -> Iterator[Finding]:
    """lspci -vv shows fewer lanes or a lower speed than the adapter has, in a text about its speed."""
    for text in passages(facts):
        for match in _ADAPTER.finditer(text):
            full = float(match["most_speed"]) * int(match["most"])
            now = float(match["speed"]) * int(match["lanes"])
            if now < full and _FAST.search(match["name"]) and (_MEASURED.search(text) or is_slow(facts)):
                words = (
                    f"{match['address']} uses {match['lanes']} of {match['most']} lanes at {match['speed']} of "
                    f"{match['most_speed']} GT/s"
                )
                evidence = {"device_address": match["address"], "lanes": int(match["lanes"]), "most": int(match["most"])}
                yield NARROW_ADAPTER.found(words, evidence, confidence=Confidence.LIKELY)
                return


_MATRIX = re.compile(
    r"""
    \btopo\ -p2p\ \S*[^\n]*\n
    \s*GPU0[^\n]*\n
    (?P<rows> (?:\s*GPU\d+\s+[^\n]*\n)+ )
    """,
    re.VERBOSE,
)
_REFUSED = {"CNS", "GNS", "TNS", "NS"}
_GEFORCE = re.compile(r"\b(?:GeForce\ )?RTX\ (?:3\d|4\d|5\d)\d\d\b|\b(?:4090|5090|4080|4070|5080|3090)s?\b", re.VERBOSE)
_HARDLY = re.compile(r"(?i)\bp2p\b|peer|slow|hardly|bandwidth|scal(?:e|es|ing)|tensor.parallel|faster")


def no_peer_access(facts: Facts) -> Iterator[Finding]:
    """nvidia-smi topo -p2p refuses every pair of GeForce cards, in a text about the speed between them."""
    text = "\n".join(passages(facts))
    match = _MATRIX.search(text)
    cells = {word for row in match["rows"].splitlines() for word in row.split()[1:] if word != "X"} if match else set()
    if cells and cells <= _REFUSED and _GEFORCE.search(text) and _HARDLY.search(_MATRIX.sub("", text)):
        words = f"nvidia-smi topo -p2p shows {', '.join(sorted(cells))} for every pair of GPUs"
        yield NO_PEERS.found(words, {"cells": sorted(cells)}, confidence=Confidence.LIKELY)


_NUMACTL = re.compile(r"\bnumactl\ [^\n|]*?(?:-N|--cpunodebind)[= ]?(?P<node>\d+)\b", re.VERBOSE)
_SHOW = re.compile(r"(?m)^nodebind:\s*(?P<node>\d+)\s*$")
_BOUND = re.compile(r"(?m)^physcpubind:\s*(?P<cpus>\d+(?: \d+)*)\s*$")


def bound_far_away(facts: Facts) -> Iterator[Finding]:
    """numactl binds a program to CPUs, and none of them is near its GPU."""
    text, near = "\n".join(passages(facts)), facts.shown.near_cpus
    visible = (known(lambda: facts.environment.get("CUDA_VISIBLE_DEVICES")) or "").split(",")
    gpus = [number for number in visible if number in near] or (list(near) if not visible[0] else [])
    bound = _BOUND.search(text)
    cpus = [int(number) for number in bound["cpus"].split()] if bound else []
    nodes = [int(match["node"]) for pattern in (_SHOW, _NUMACTL) for match in pattern.finditer(text)]
    if gpus and len(set(nodes)) == 1 and is_slow(facts) and all(_is_far(near[gpu], cpus, nodes[0]) for gpu in gpus):
        home = near[gpus[0]]["node"]
        words = f"numactl binds the program to NUMA node {nodes[0]}, and GPU {', '.join(gpus)} is not near it"
        evidence = {"node": home if home is not None else 0, "bound": nodes[0]}
        problem = replace(facts.problems["numa-affinity-wrong"], fixes=(NEARER, *facts.problems["numa-affinity-wrong"].fixes[1:]))
        yield problem.found(words, evidence, confidence=Confidence.LIKELY)


def _is_far(near: Mapping[str, Any], cpus: Sequence[int], node: int) -> bool:
    if cpus:
        return not set(cpus) & set(near["cpus"])
    return near["node"] is not None and near["node"] != node


_WINDOW = re.compile(r"BAR1 Memory Usage\s*\n\s*Total\s*:\s*(?P<mib>\d+) MiB")


def small_window(facts: Facts) -> Iterator[Finding]:
    """nvidia-smi -q shows GPUs with a resized window, and one without."""
    sizes = [int(match["mib"]) for text in passages(facts) for match in _WINDOW.finditer(text)]
    if len(sizes) > 1 and min(sizes) <= 512 and max(sizes) >= 4096:
        index = sizes.index(min(sizes))
        words = f"the window of GPU {index} has {min(sizes)} MiB, and that of others {max(sizes)} MiB"
        yield SMALL_BAR.found(words, {"index": index, "mib": min(sizes), "most_mib": max(sizes)}, confidence=Confidence.LIKELY)


_NO_LINKS = re.compile(r"(?m)^\s*Link \d+: (?P<state><inactive>|\d)")
_OVER_PCIE = re.compile(r"(?m)^\s*GPU\d+\s[^\n]*\b(?:PIX|PXB|PHB|NODE|SYS|SOC)\b")
_NO_GAIN = re.compile(
    r"""
    \b(?:two|both|2|multi\w*)\b[^\n]{0,60}\b(?:same|slower|not\ faster|hardly|no\ faster|as\ long)\b
    | \b(?:same|slower|no\ faster|hardly)\b[^\n]{0,60}\b(?:two|both|2|multi\w*)\b | \balso\ \d+\ ?s\ with\ two\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def only_pcie(facts: Facts) -> Iterator[Finding]:
    """Two GPUs are as fast as one, all links are inactive, and the topology shows PCIe."""
    text = "\n".join(passages(facts))
    states = {match["state"] for match in _NO_LINKS.finditer(text)}
    if states == {"<inactive>"} and _OVER_PCIE.search(text) and _NO_GAIN.search(text) and "ridge" not in text:
        words = "every NVLink is inactive, and the topology shows only PCIe between the GPUs"
        yield ONLY_PCIE.found(words, {"links": "inactive"}, confidence=Confidence.LIKELY)


NEARER = Fix(
    "Bind the program to the NUMA node of its GPU (NUMA Affinity in nvidia-smi topo -m)",
    "nvidia-smi topo -m  # then: numactl --cpunodebind=<numa_node> --membind=<numa_node> PROGRAM",
    kind="read",
)
RULES = (lower_limit, narrow_adapter, no_peer_access, bound_far_away, small_window, only_pcie)
