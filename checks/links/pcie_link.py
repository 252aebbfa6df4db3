"""Every GPU's PCIe link is as wide, and under load as fast, as card and slot allow.

What it means
All data between CPU and GPU passes through this link. A card that is not seated well, a riser or a shared slot leaves it with
a half, a quarter or a sixteenth of its lanes. Loading data and offloading become slower by the same factor, without any
error.

How it is judged
Compares NVML's current width with the width that card and slot support together, at any load: the width does not depend on
it. Compares the card's own width with the bridges above it in /sys. Judges the generation only while the GPU is in P0 and
more than half busy. If the kernel logged "available PCIe bandwidth, limited by", the line is shown: it names the narrow link.
The errors of such a link are shown too: replays, and the kernel's lines about it (AER).

Known exceptions
An idle GPU lowers its link to generation 1. In a virtual machine the bridges belong to the hypervisor, and clouds connect
some cards with half of their lanes, so only less than half is reported. Laptops and cards with x8 or x1 by design are
healthy. External enclosures have four lanes, which is reported.

References
https://github.com/imbue-ai/cluster-health/blob/master/health_checks/health_checks.py
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
https://github.com/aws/aws-k8s-tester/pull/806
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.facts.pcie_links import (
    function_of,
    has_lost_lanes,
    is_slow_at_work,
    lanes,
    link_errors,
    narrowest_bridge,
    possible_width,
)
from gpudoctor.fixes.common import kernel_log, look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, for_each

HEALTH_CHECKS = "https://github.com/imbue-ai/cluster-health/blob/master/health_checks/health_checks.py"
MOBILE = re.compile(r"Laptop|Mobile|Max-Q Design|\bMX\d{3}")
LOOK = "nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.width.current,pcie.link.width.max --format=csv"
HOST = Fix("Ask the owner of the host: the slot cannot be repaired from inside a container", on=("container",), verify=LOOK)
WINDOWS = Fix("Shut down Windows, switch the power off, reseat the card", risk="disruptive", on=("wsl2",), verify=LOOK)

DOWNGRADED = Problem(
    id="pcie-width-downgraded",
    title="A GPU's PCIe link has lost lanes",
    why="Card and slot support more lanes than are in use. The card is not seated well, its contacts or a riser are bad, or the "
    "link training failed at this boot.",
    action=Action.REBOOT,
    status=Status.WARN,
    fixes=(
        Fix("Reboot: link training can fail once", verify=LOOK, on=("host",), reboot=True),
        Fix(
            "If it does not help: switch off, reseat the card, clean its contacts, remove the riser",
            risk="disruptive",
            verify=LOOK,
            on=("physical",),
        ),
        WINDOWS,
        HOST,
    ),
    references=(HEALTH_CHECKS,),
)

# A failed link training leaves no errors behind: with errors, a reboot only interrupts work.
BAD_CONTACT = (
    Fix(
        "Switch off, reseat the card, clean its contacts, replace or remove the riser: errors with lost lanes mean bad contacts",
        risk="disruptive",
        verify=LOOK,
        on=("physical",),
    ),
    Fix("If the same slot loses lanes with another card, too: have the board or its riser replaced", on=("physical",)),
    WINDOWS,
    HOST,
)

NARROW_SLOT = Problem(
    id="pcie-slot-narrower-than-card",
    title="A GPU is in a slot with fewer PCIe lanes than the card has",
    why="The port above the card has fewer lanes: a chipset slot, lanes shared with an M.2 drive or a second card, or a "
    "bifurcation setting in the firmware.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look(
            "Show what the port is and what is connected below it",
            "lspci -tv; sudo lspci -vv -s <bridge> | grep -E 'Slot|LnkCap|LnkSta'",
            root=True,
        ),
        Fix(
            "Move the card to an x16 slot of the CPU, empty the M.2 slot that shares its lanes, or set the slot to x16 in "
            "the firmware",
            risk="disruptive",
            verify=LOOK,
            on=("physical",),
        ),
        HOST,
    ),
    references=(HEALTH_CHECKS,),
)

LOW_GENERATION = Problem(
    id="pcie-gen-low-under-load",
    title="A busy GPU's PCIe link runs at a low speed",
    why="An idle link slows down to save power, but this GPU is busy. The firmware limits the slot, or the link fell back to a "
    "lower speed after errors, as it does on a bad riser.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        kernel_log("Check the kernel log for link errors", "-E 'AER|PCIe Bus Error'", on=("host",)),
        Fix(
            "Set the slot's speed to Auto in the firmware, disable ASPM there, use a better riser",
            needs=("reboot",),
            risk="disruptive",
            verify=LOOK,
            on=("physical",),
        ),
        WINDOWS,
        HOST,
    ),
    references=("https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h",),
)

IN_LAPTOP = (
    LOW_GENERATION.fixes[0],
    Fix("Plug the laptop in, disable PCIe power saving (ASPM) in its firmware, and update the firmware", verify=LOOK),
)


def judge(facts: Facts) -> Iterator[Finding]:
    parts = [(judge_part, gpu) for gpu in facts.nvml.gpus for judge_part in (judge_width, judge_slot, judge_generation)]
    yield from for_each(parts, lambda part: part[0](facts, part[1]))


def judge_width(facts: Facts, gpu: Gpu) -> Iterator[Finding]:
    if has_lost_lanes(facts, gpu):
        possible = possible_width(facts, gpu)
        errors = link_errors(facts, gpu)
        problem = replace(DOWNGRADED, action=Action.FIX_CONFIG, fixes=BAD_CONTACT) if any(errors.values()) else DOWNGRADED
        yield problem.found(
            f"GPU {gpu.index} has x{gpu.pcie_width} of x{possible} lanes{errors_in_words(facts, gpu)}",
            {
                "link": gpu.bus_id,
                "lanes": gpu.pcie_width,
                "possible_lanes": possible,
                **errors,
                **kernel_line(facts, gpu.bus_id),
            },
            gpu=gpu.index,
        )


def judge_slot(facts: Facts, gpu: Gpu) -> Iterator[Finding]:
    if MOBILE.search(gpu.name):
        raise Skip("the number of lanes of a laptop GPU depends on the model", Skip.UNSUPPORTED)
    bridge = narrowest_bridge(facts, gpu)
    if bridge is None:
        raise Skip("the bridge above the GPU is not visible here", Skip.UNSUPPORTED)
    card = card_lanes(facts, gpu)
    if lanes(bridge) < card:
        yield NARROW_SLOT.found(
            f"GPU {gpu.index} has x{card} lanes; the port {bridge.address} above it has x{lanes(bridge)}",
            {"bridge": bridge.address, "link": gpu.bus_id, "card_lanes": card, **kernel_line(facts, gpu.bus_id)},
            gpu=gpu.index,
        )


def judge_generation(facts: Facts, gpu: Gpu) -> Iterator[Finding]:
    if is_slow_at_work(gpu):
        current, maximum, busy = gpu.pcie_generation, gpu.maximum_pcie_generation, gpu.utilization.gpu_percent
        words = f"GPU {gpu.index} is {busy} % busy in P0, but its link runs at generation {current} of {maximum}"
        evidence = {"link": gpu.bus_id, "generation": current, "possible_generation": maximum, "busy_percent": busy}
        errors = "" if has_lost_lanes(facts, gpu) else errors_in_words(facts, gpu)
        problem = replace(LOW_GENERATION, fixes=IN_LAPTOP) if MOBILE.search(known(lambda: gpu.name, "")) else LOW_GENERATION
        yield problem.found(words + errors, {**evidence, **link_errors(facts, gpu)}, gpu=gpu.index)


def errors_in_words(facts: Facts, gpu: Gpu) -> str:
    errors = [f"{count} {name.replace('_', ' ')}" for name, count in link_errors(facts, gpu).items()]
    return "; " + ", ".join(errors) if errors else ""


def card_lanes(facts: Facts, gpu: Gpu) -> int:
    """The lanes of the card itself; a few chips report more than their boards have."""
    function = function_of(facts, gpu)
    if function is None or function.maximum_link_width is None:
        raise Skip(f"GPU {gpu.index} does not report how many lanes it has", Skip.UNSUPPORTED)
    board = knowledge.gpu_by_name(gpu.name)
    return min(function.maximum_link_width, board.pcie_width or 16) if board else function.maximum_link_width


def kernel_line(facts: Facts, address: str) -> dict[str, str]:
    """The kernel's line about this device's bandwidth, if the log is readable; it only explains."""
    lines = known(lambda: facts.kernel_log.matching(rf"{re.escape(address)}: .*available PCIe bandwidth, limited by"))
    return {"kernel": lines[-1].text} if lines else {}


def summary(facts: Facts) -> str:
    links = sorted({f"PCIe x{gpu.pcie_width}, up to generation {gpu.maximum_pcie_generation}" for gpu in facts.nvml.gpus})
    return "; ".join(links)


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DOWNGRADED, NARROW_SLOT, LOW_GENERATION),
    needs=("nvml",),
    tags=("hardware", "performance"),
)
