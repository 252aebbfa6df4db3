"""The PCIe links of the GPUs: NVML's answers, the bridges above them, and kernel messages about both."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.pci import Bridge, PciFunction
from gpudoctor.model import Skip, Unavailable

if TYPE_CHECKING:
    from gpudoctor.facts import Facts

BUSY_PERCENT = 50
MAXIMUM_REPLAYS = 80
MAXIMUM_REPLAYS_PER_HOUR = 10
BUS_ERROR = re.compile(
    r"""
    ( [0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f] ):\ (?: AER:[ ] )?
    (?:
        PCIe\ Bus\ Error:\ severity=(?P<severity> \w+(?:\ \([\w-]+\))? )
        | (?P<containment> DPC:\ containment\ event )
    )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class BusErrors:
    """Kernel messages about PCIe errors, counted by address, and the last of them."""

    corrected: Counter[str]
    uncorrected: Counter[str]
    last: str


def function_of(facts: Facts, gpu: Gpu) -> PciFunction | None:
    return next((function for function in facts.pci.gpus if function.address == gpu.bus_id), None)


def narrowest_bridge(facts: Facts, gpu: Gpu) -> Bridge | None:
    """The narrowest port between GPU and CPU; None if the ports are virtual or their widths are unknown."""
    try:
        function = function_of(facts, gpu)
    except Unavailable:
        return None
    if function is None or is_virtual(facts, gpu):
        return None
    above = [facts.pci.bridges[address] for address in function.parents if address in facts.pci.bridges]
    return min((bridge for bridge in above if bridge.maximum_link_width), key=lanes, default=None)


def lanes(bridge: Bridge) -> int:
    return bridge.maximum_link_width or 0


def possible_width(facts: Facts, gpu: Gpu) -> int:
    """The lanes that card and slot both support."""
    bridge = narrowest_bridge(facts, gpu)
    return min(gpu.maximum_pcie_width, lanes(bridge) if bridge else gpu.maximum_pcie_width)


def has_lost_lanes(facts: Facts, gpu: Gpu) -> bool:
    """Whether lanes are missing. Clouds wire some cards with half their lanes: in a virtual machine only less than half
    counts."""
    possible = possible_width(facts, gpu)
    return gpu.pcie_width < (possible // 2 if is_virtual(facts, gpu) else possible)


def is_virtual(facts: Facts, gpu: Gpu) -> bool:
    """Whether this is a virtual machine; if the system does not show it, according to NVML."""
    try:
        return facts.system.hypervisor is not None
    except Unavailable:
        return gpu.virtualization_mode != "none"


def is_slow_at_work(gpu: Gpu) -> bool:
    if gpu.pcie_generation >= gpu.maximum_pcie_generation or gpu.performance_state != 0:
        return False
    return gpu.utilization.gpu_percent > BUSY_PERCENT


def is_degraded(facts: Facts, gpu: Gpu) -> bool:
    """Whether the link is narrower or slower than it could be, which explains its errors; False if unknown."""
    try:
        if has_lost_lanes(facts, gpu):
            return True
    except Skip:
        pass
    try:
        return is_slow_at_work(gpu)
    except Skip:
        return False


def has_many_replays(facts: Facts, gpu: Gpu) -> bool:
    return gpu.pcie_replays > max(MAXIMUM_REPLAYS, facts.system.uptime_seconds / 3600 * MAXIMUM_REPLAYS_PER_HOUR)


def way_to(function: PciFunction) -> tuple[str, ...]:
    """The addresses of a GPU and of all bridges above it."""
    return (function.address, *function.parents)


def bus_errors(facts: Facts, addresses: Collection[str]) -> BusErrors:
    corrected: Counter[str] = Counter()
    uncorrected: Counter[str] = Counter()
    last = ""
    for line in facts.kernel_log.lines:
        match = BUS_ERROR.search(line.text)
        if match and match[1] in addresses:
            (corrected if (match["severity"] or "").startswith("Correct") else uncorrected)[match[1]] += 1
            last = line.text
    return BusErrors(corrected, uncorrected, last)


def link_errors(facts: Facts, gpu: Gpu) -> dict[str, int]:
    """The error counters of this link, as far as readable; empty if there are no errors."""
    counts: dict[str, int] = {}
    try:
        if has_many_replays(facts, gpu):
            counts["replays"] = gpu.pcie_replays
    except Skip:
        pass
    try:
        function = function_of(facts, gpu)
        found = bus_errors(facts, way_to(function) if function else (gpu.bus_id,))
        counts.update(corrected_errors=found.corrected.total(), uncorrected_errors=found.uncorrected.total())
    except Skip:
        pass
    return {name: count for name, count in counts.items() if count}
