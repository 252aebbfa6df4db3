"""What takes nodes out of service, in the scheduler's own words. Printed; never run without being asked for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gpudoctor.fleet.model import Drain, Group, Node, State
from gpudoctor.fleet.nodesets import folded
from gpudoctor.model import Status
from gpudoctor.plain import plain

LONGEST_REASON = 120


def drains(nodes: Sequence[Node], groups: Sequence[Group]) -> tuple[Drain, ...]:
    """One for each group of bad nodes; a node that is in several belongs to the first."""
    bad = {node.name for node in nodes if node.is_bad and node.state is not State.INTERRUPTED}
    found = []
    for group in groups:
        names = [name for name in group.names if name in bad]
        if not names or group.status is not Status.FAIL:
            continue
        bad -= set(names)
        found.append(drain(names, group.items[0].words))
    return tuple(found)


def drain(names: Sequence[str], reason: str) -> Drain:
    nodes = folded(names)
    said = plain(f"gpudoctor: {reason}")[:LONGEST_REASON]
    slurm = shlex.join(["scontrol", "update", f"nodename={nodes}", "state=drain", f"reason={said}"])
    return Drain(nodes, said, slurm, shlex.join(["kubectl", "cordon", *names]))
