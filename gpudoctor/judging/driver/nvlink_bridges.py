"""NVLinks over a bridge that is plugged onto two cards: if both ends are down, neither GPU is at fault. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.facts.xids import LINK_ERRORS, GpuXids
from gpudoctor.fixes.common import power_off, reset
from gpudoctor.model import Action, Fix, Problem

LINK = re.compile(r"\blink (\d+)", re.IGNORECASE)
LOOK = "nvidia-smi nvlink -s"
RESEAT = power_off("Power off, reseat the bridge on both cards, power on", verify=LOOK, needs=("root", "drain"))
REPLACE = Fix(
    "If the same links stay down: swap bridges; replace the bridge if the fault moves with it, else a card or its slot",
    risk="disruptive",
    verify=LOOK,
    on=("host",),
)
TRY_RESET = reset(
    "Until then: stop all GPU work, then reset the bridge's GPUs, which may bring the links up again", gpu="", verify=LOOK
)
HOST = Fix("Ask the owner of the host to repair the links: a container cannot", on=("container",), verify=LOOK)


def has_bridge(gpu: Gpu) -> bool:
    """Whether its links go over a plugged bridge, as on all plug-in cards."""
    board = knowledge.gpu_by_name(gpu.name)
    if board and board.nvlink:
        return "bridge" in board.nvlink.form
    return not any(link.remote == "switch" for link in gpu.nvlinks)


def of_bridge(problem: Problem, xid: str = "") -> Problem:
    """The same problem if the bridge is at fault."""
    return replace(
        problem,
        title=f"The NVLink bridge between two GPUs is loose or broken{xid}",
        why="The same links are down on both cards, and the bridge is what the two have in common; a failing GPU would usually "
        "lose only its own links. The remaining links carry the traffic, so collectives are slower.",
        action=Action.REPLACE_HARDWARE,
        fixes=(RESEAT, REPLACE, TRY_RESET, HOST),
    )


def broken_at_both_ends(facts: Facts, gpus: Sequence[GpuXids]) -> tuple[tuple[int, ...], str] | None:
    """The failed links and the card at their other end, if both cards report them or NVML shows them down on both."""
    first, *others = gpus
    links = links_of(first)
    if not links or first.gpu is None or not _is_bridged(first.gpu):
        return None
    if len(others) == 1 and links_of(others[0]) == links and _is_bridged(others[0].gpu):
        return tuple(sorted(links)), others[0].name
    twin = None if others else twin_of(facts, first.gpu)
    return (down(first.gpu), f"GPU {twin.index}") if twin else None


def twin_of(facts: Facts, gpu: Gpu) -> Gpu | None:
    """The only other card with a bridge on which the same links are down."""
    twins = [one for one in facts.nvml.gpus if one.index != gpu.index and _is_bridged(one) and down(one) == down(gpu)]
    return twins[0] if len(twins) == 1 and down(gpu) else None


def down(gpu: Gpu) -> tuple[int, ...]:
    """The links that are down while others are up; empty if unknown."""
    links = known(lambda: gpu.nvlinks, ())
    return tuple(link.link for link in links if not link.active) if any(link.active for link in links) else ()


def links_of(gpu: GpuXids) -> frozenset[int]:
    texts = (LINK.search(xid.text) for xid in gpu.all if xid.code in LINK_ERRORS)
    return frozenset(int(found[1]) for found in texts if found)


def _is_bridged(gpu: Gpu | None) -> bool:
    return known(lambda: gpu is not None and has_bridge(gpu), False)


def numbers(links: Iterable[int]) -> str:
    """Text such as "link 3", "links 8 to 11" or "links 0, 2 and 5"."""
    first, *others = sorted(links)
    if not others:
        return f"link {first}"
    *between, last = others
    if between and others == list(range(first + 1, last + 1)):
        return f"links {first} to {last}"
    return f"links {', '.join(map(str, (first, *between)))} and {last}"
