"""A firewall between nodes, as the cause of a connection of NCCL that fails although the other node answers. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding, Fix

_ANSWERS = re.compile(
    r"""
    \d+\ bytes\ from\ [\w.:() -]+:\ icmp_seq=\d+
    | \b[1-9]\d*\ (?:packets\ )?received\b
    | \bping\w*\ (?:works|is\ fine|ok)\b
    """,
    re.VERBOSE,
)
_REJECTED = re.compile(r"No route to host|Connection refused|timed out|Host is unreachable")
_FIREWALL = re.compile(
    r"""
    firewall-cmd\ --state\s*\n\s*running | ^Status:\ active\s*$ | firewalld\.service\b[^\n]*\n(?:[^\n]*\n){0,3}?\s*Active:\ active
    | ^(?:-A\ INPUT\ [^\n]*)?\b(?:REJECT|DROP)\b
    """,
    re.MULTILINE | re.VERBOSE,
)
TITLE = "A firewall between the nodes blocks NCCL's connections"
WHY = (
    "The node answers to ping, and a connection to one of NCCL's ports is rejected. NCCL uses a random port for each connection, "
    "so opening single ports does not help."
)
OPEN = (
    Fix(
        "With firewalld, on all nodes: trust the interface between them",
        "sudo firewall-cmd --permanent --zone=trusted --add-interface=<interface> && sudo firewall-cmd --reload",
        undo="sudo firewall-cmd --permanent --zone=trusted --remove-interface=<interface> && sudo firewall-cmd --reload",
        verify="sudo firewall-cmd --zone=trusted --list-interfaces",
        on=("host",),
        kind="set",
        needs=("root",),
    ),
    Fix(
        "With ufw, on all nodes: allow what comes in over this interface",
        "sudo ufw allow in on <interface>",
        undo="sudo ufw delete allow in on <interface>",
        verify="sudo ufw status",
        on=("host",),
        kind="set",
        needs=("root",),
    ),
)


def by_firewall(finding: Finding, facts: Facts) -> Finding:
    """The same problem, with the firewall as its cause, if the text shows one and that the node answers."""
    if finding.problem.id != "nccl-network-unreachable":
        return finding
    text = "\n".join(passages(facts))
    if not (_REJECTED.search(text) and _FIREWALL.search(text) and _ANSWERS.search(text)):
        return finding
    evidence = {key: value for key, value in finding.evidence.items() if key not in ("could_be", "decide")}
    problem = replace(finding.problem, title=TITLE, why=WHY, fixes=(*OPEN, *finding.problem.fixes[:1]))
    words = f"{finding.message}; the node answers to ping, and a firewall is active"
    return replace(finding, problem=problem, message=words, evidence=evidence, confidence=Confidence.LIKELY)
