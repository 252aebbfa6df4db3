"""What takes nodes out of service, in the scheduler's own words. Printed; never run without being asked for."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence

from gpudoctor.fleet import endings
from gpudoctor.fleet.model import TITLES, Drain, Group, Node, State
from gpudoctor.fleet.nodesets import folded
from gpudoctor.model import Status
from gpudoctor.plain import plain

LONGEST_REASON = 120
_NAME_UNKNOWN = (endings.NAME_UNKNOWN, "invalid node name")
_ALL = "all"  # for scontrol, every node of the cluster
_NO_IMAGE = ("ErrImage", "ImagePull", "InvalidImageName")  # reasons of Kubernetes
# What checks in these areas find is repaired where the programs are, while the node stays in service.
_OF_PROGRAMS = ("evidence", "frameworks", "job", "libraries", "python", "toolchain")


def drains(nodes: Sequence[Node], groups: Sequence[Group]) -> tuple[Drain, ...]:
    """One for each group of bad nodes; a node that is in several belongs to the first."""
    to_drain = {node.name for node in nodes if node.is_bad and not kept_because(node)}
    found = []
    for group in groups:
        names = [name for name in group.names if name in to_drain]
        if not names or (group.status is not Status.FAIL and not group.lost_gpus):
            continue
        to_drain -= set(names)
        found.append(drain(names, group.items[0].words))
    return tuple(found)


def kept(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Why bad nodes are not drained -> their names."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if node.is_bad and (reason := kept_because(node)):
            found.setdefault(reason, []).append(node.name)
    return found


def kept_because(node: Node) -> str:
    """Why a bad node should stay in service; "" if it is the node that is at fault."""
    if not node.state.is_of_node:
        return TITLES[node.state]
    if node.name.rpartition("@")[2].lower() == _ALL:
        return "scontrol takes this name for every node"
    if node.state is State.UNREACHABLE and any(said in node.detail.lower() for said in _NAME_UNKNOWN):
        return "its name is not known here"
    if not node.state.has_answered and node.detail.startswith(_NO_IMAGE):
        return "its image could not be pulled"
    failed = [problem for problem in node.problems if problem.status is Status.FAIL]
    is_of_programs = failed and all(problem.area in _OF_PROGRAMS for problem in failed)
    if node.state is State.ANSWERED and not node.lost_gpus and is_of_programs:
        return "only its programs have problems"
    return ""


def drain(names: Sequence[str], reason: str) -> Drain:
    names = [name.rpartition("@")[2] for name in names]  # of root@node1, which is for ssh
    nodes = folded(names)
    said = textwrap.shorten(plain(f"gpudoctor: {reason}"), LONGEST_REASON, placeholder=" …")
    slurm = shlex.join(["scontrol", "update", f"nodename={nodes}", "state=drain", f"reason={said}"])
    return Drain(nodes, said, slurm, shlex.join(["kubectl", "cordon", *names]))
