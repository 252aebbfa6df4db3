"""The network between nodes in a text: speeds, lanes and counters that are too low or too high for their kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.places import complains, is_slow
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

SLOW_NETWORK = Problem(
    id="network-between-nodes-slow",
    title="The network between the nodes is far slower than the job needs",
    why="In each step the ranks exchange their gradients over this interface. At 1 Gb/s, 100 MB take almost a second, so more "
    "nodes make the training slower.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "If the nodes have a faster network: let NCCL use its interface",
            "export NCCL_SOCKET_IFNAME=<interface>",
            where="shell",
            kind="set",
        ),
        Fix("If a card should be faster than its Speed line says: replace its cable, and check the switch's port"),
        Fix("If there is no faster network: train on one node, or exchange less (gradient accumulation, LoRA, pipeline stages)"),
    ),
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
)
NO_FLOW_CONTROL = Problem(
    id="roce-without-flow-control",
    title="The RoCE network drops packets: no flow control is enabled",
    why="RDMA over Ethernet resends whole messages after a lost packet, so a few drops cost most of the bandwidth. Pause frames "
    "or PFC keep the switch from dropping, and must be enabled on the adapters and on the switch.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Enable PFC for the priority of RoCE on each adapter, and the same on the switch",
            "sudo mlnx_qos -i <interface> --pfc 0,0,0,1,0,0,0,0 --trust dscp",
            verify="mlnx_qos -i <interface>",
            undo="sudo mlnx_qos -i <interface> --pfc 0,0,0,0,0,0,0,0",
            where="host",
            kind="set",
            needs=("root",),
        ),
        Fix("Without PFC on the switch: enable global pause there and on the adapters"),
    ),
    references=("https://github.com/NVIDIA/nccl/issues/378",),
)
PROBLEMS = (SLOW_NETWORK, NO_FLOW_CONTROL)

SLOW_MBIT = 1000
_SPEED = re.compile(r"(?m)^\s*Speed:\s*(?P<mbit>\d+)Mb/s")
_OF_INTERFACE = re.compile(r"^ethtool\s+(?P<name>[\w.@-]+)")
_USES = re.compile(
    r"""
    NET/Socket\ :\ Using\ \[0\](?P<log>[\w.-]+):|\b(?:NCCL|GLOO)_SOCKET_IFNAME=[\"']?(?P<set>[\w.-]+)
    """,
    re.VERBOSE,
)
_MANY = re.compile(
    r"""
    --nnodes[=\ ](?:\d+:)?[2-9]|\b(?:two|2|four|4|three|3|eight|8
        |several|both|other)\ (?:nodes|machines|servers|hosts)\b
    """,
    re.VERBOSE,
)
_BITRATE = re.compile(r"(?P<number>[\d.]+)\s+(?P<unit>[MG])bits/sec[^\n]*\bsender\b")


def slow_network(facts: Facts) -> Iterator[Finding]:
    """Ranks of several nodes exchange data over an interface of 1 Gb/s, or iperf3 measures so little."""
    text = "\n".join(passages(facts))
    shown = facts.shown.output("ethtool")
    speed, interface = _SPEED.search(shown), _OF_INTERFACE.search(shown)
    used = {match["log"] or match["set"] for match in _USES.finditer(text)}
    measured = _BITRATE.search(facts.shown.output("iperf3"))
    mbit = float(measured["number"]) * (1000 if measured["unit"] == "G" else 1) if measured else 0.0
    of_nodes = _MANY.search(text) or used
    if not (of_nodes and (is_slow(facts) or re.search(r"(?i)scal|bandwidth|longer", text))):
        return
    if speed and interface and int(speed["mbit"]) <= SLOW_MBIT and (interface["name"] in used or not used):
        words = f"the ranks exchange data over {interface['name']}, which runs at {speed['mbit']} Mb/s"
        yield SLOW_NETWORK.found(words, {"used": interface["name"], "mbit": int(speed["mbit"])}, confidence=Confidence.LIKELY)
    elif 0 < mbit <= SLOW_MBIT:
        words = f"iperf3 measures {mbit:.0f} Mb/s between the nodes"
        yield SLOW_NETWORK.found(words, {"mbit": round(mbit)}, confidence=Confidence.LIKELY)


_LINK = re.compile(
    r"""
    ^\s*(?:0x[\da-f]+\s+)?(?P<row>[^\n]*?)==\(\s*(?P<lanes>\d+)X\s+(?P<rate>[\d.]+)\s+Gbps\s+Active[^\n]*
    """,
    re.MULTILINE | re.VERBOSE,
)
_WIDTH = re.compile(r"(?m)^\s*Width\s+:\s*(?P<lanes>\d+)x\b")
FULL = 4  # lanes of a cable
FEWER = "An InfiniBand link uses fewer lanes than its cable has"


def narrow_cable(facts: Facts) -> Iterator[Finding]:
    """iblinkinfo or mlxlink shows an active link with one or two lanes."""
    lanes = [int(match["lanes"]) for match in _LINK.finditer(facts.shown.output("iblinkinfo"))]
    lanes += [int(match["lanes"]) for match in _WIDTH.finditer(facts.shown.output("mlxlink"))]
    narrow = [number for number in lanes if 0 < number < FULL]
    if narrow and (len(narrow) < len(lanes) or is_slow(facts) or _MEASURED.search("\n".join(passages(facts)))):
        words = f"a link is active with {narrow[0]} of {FULL} lanes"
        problem = replace(facts.problems["ib-link-slow"], title=FEWER, fixes=CABLE)
        yield problem.found(words, {"lanes": narrow[0]}, confidence=Confidence.LIKELY)


CABLE = (
    Fix("Plug the cable of this link out and in again at both ends, or replace it"),
    Fix("Show the links and what they could be", "sudo iblinkinfo | grep -i 'could be'", kind="read", needs=("root",)),
)
_MEASURED = re.compile(r"(?i)\bGb/s|bandwidth|busbw|throughput")
_COUNTERS = re.compile(
    r"""
    ^(?P<name>SymbolErrorCounter|LinkErrorRecoveryCounter|LinkDownedCounter
        |PortRcvErrors):\.*(?P<count>\d+)\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
MOST = {"SymbolErrorCounter": 1000, "LinkErrorRecoveryCounter": 10, "LinkDownedCounter": 10, "PortRcvErrors": 1000}


def port_errors(facts: Facts) -> Iterator[Finding]:
    """perfquery shows counters of a damaged cable, in a text about speed or lost connections."""
    for match in _COUNTERS.finditer(facts.shown.output("perfquery")):
        if int(match["count"]) >= MOST[match["name"]] and complains(facts):
            words = f"perfquery shows {match['name']} {match['count']}"
            evidence = {"counter": match["name"], "count": int(match["count"])}
            yield facts.problems["network-port-errors"].found(words, evidence, confidence=Confidence.LIKELY)
            return


_DROPS = re.compile(
    r"""
    ^\s*(?P<name>rx_discards_phy|rx_prio\d+_discards|tx_discards_phy
        |rx_out_of_buffer):\ (?P<count>\d+)\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_PAUSES = re.compile(r"(?m)^\s*[rt]x_(?:pause_ctrl_phy|prio\d_pause): (?P<count>\d+)\s*$")
_PFC_OFF = re.compile(r"PFC configuration:\s*\n[^\n]*\n\s*enabled(?:\s+0){8}\s*$", re.MULTILINE)
_OF_RDMA = re.compile(r"(?i)\broce\b|\bNCCL_IB_|\bmlx5_\d|\brdma\b")
MANY_DROPS = 1000


def no_flow_control(facts: Facts) -> Iterator[Finding]:
    """The adapter counts many dropped packets, and no pause frame of any priority."""
    text = "\n".join(passages(facts))
    drops = [match for match in _DROPS.finditer(text) if int(match["count"]) >= MANY_DROPS]
    pauses = [int(match["count"]) for match in _PAUSES.finditer(text)]
    is_off = _PFC_OFF.search(text) or (pauses and not any(pauses))
    if drops and is_off and _OF_RDMA.search(text):
        words = f"{drops[0]['name']} is {drops[0]['count']}, and neither pause frames nor PFC are in use"
        evidence = {"counter": drops[0]["name"], "count": int(drops[0]["count"])}
        if of := re.search(r"\b(?:ethtool -S|mlnx_qos -i) (?P<name>[\w.-]+)", text):
            evidence["interface"] = of["name"]
        yield NO_FLOW_CONTROL.found(words, evidence, confidence=Confidence.LIKELY)


RULES = (no_flow_control, slow_network, narrow_cable, port_errors)
