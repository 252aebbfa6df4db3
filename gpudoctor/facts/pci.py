"""NVIDIA's PCI functions and the bridges above them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpudoctor.facts import shared
from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies
from gpudoctor.knowledge import architecture_of_chip, architecture_of_device
from gpudoctor.model import Skip, Unavailable

GPU_CLASSES = (0x0300, 0x0302)  # VGA controller, 3D controller
NVSWITCH_CLASS = 0x0680
IORESOURCE_MEM_64 = 0x100000  # https://github.com/torvalds/linux/blob/master/include/linux/ioport.h
UNTOLD = "?"
ADDRESS = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
MAXIMUM_LANES = 32  # the kernel reports 255, and a dead device 63, for "unknown"


@dataclass(frozen=True)
class Bridge(Guarded):
    """A PCIe port above an NVIDIA function."""

    address: str
    vendor: int
    device_id: int
    driver: str | None
    link_speed_gts: float | None
    link_width: int | None
    maximum_link_speed_gts: float | None
    maximum_link_width: int | None
    acs: int | str | None  # "denied" if only root can read it

    @property
    def acs_control(self) -> int | None:
        """The ACS control register (0x001d redirects peer-to-peer traffic); None if the bridge has no ACS."""
        if isinstance(self.acs, str):
            raise Unavailable(f"the ACS register of {self.address} can only be read by root", Skip.NOT_PERMITTED)
        return self.acs


@dataclass(frozen=True)
class PciFunction(Guarded):
    """One NVIDIA function. Widths are None if the device or a hypervisor does not report them; also the NUMA node (-1)."""

    address: str
    stated_device_id: int | None  # None in a listing without ids
    chip: str  # TU117M; "" if it is not named
    subsystem: str  # "10de:1626"
    class_code: int  # base class and subclass: 0x0302
    stated_driver: str | None  # UNTOLD if not examined
    numa_node: int | None
    link_speed_gts: float | None
    link_width: int | None
    maximum_link_speed_gts: float | None
    maximum_link_width: int | None
    framebuffer_bar: tuple[int, int]  # NVIDIA's BAR1, whatever its number: (start, size), as in bars
    bars: tuple[tuple[int, int], ...]  # six pairs (start, size); size 0 is unused, start 0 with a size is unassigned
    config_all_ones: bool | None
    iommu_group_type: str | None  # identity, DMA, DMA-FQ
    is_virtual_function: bool
    parents: tuple[str, ...]  # bridges, the root port first

    @property
    def device_id(self) -> int:
        if self.stated_device_id is None:
            raise Unavailable(f"the device id of {self.address} is not shown")
        return self.stated_device_id

    @property
    def model(self) -> str:
        """10de:2684; the name of the chip if the id is not known."""
        return f"10de:{self.stated_device_id:04x}" if self.stated_device_id is not None else self.chip

    @property
    def generation(self) -> str | None:
        """Kepler to Blackwell; None if the tables do not have it."""
        return architecture_of_chip(self.chip) if self.stated_device_id is None else architecture_of_device(self.stated_device_id)

    @property
    def driver(self) -> str | None:
        """The kernel driver bound to it."""
        if self.stated_driver == UNTOLD:
            raise Unavailable(f"the driver of {self.address} is unknown")
        return self.stated_driver

    @property
    def responds(self) -> bool:
        """Whether the function answers on the bus at all; one that fell off reads as all ones."""
        if self.config_all_ones is None:
            raise Unavailable(f"the configuration space of {self.address} could not be read", Skip.NOT_PERMITTED)
        return not self.config_all_ones


class Pci(Guarded):
    """The state of the bus, independent of the driver. WSL2 shows no NVIDIA functions."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def _answer(self) -> dict[str, Any]:
        nothing: dict[str, Any] = {"functions": {}, "bridges": {}, "other_display": []}
        return self._replies.optional("pci") or nothing

    @cached_property
    def functions(self) -> tuple[PciFunction, ...]:
        return shared.once(self._answer, _functions)

    @cached_property
    def gpus(self) -> tuple[PciFunction, ...]:
        """Physical GPUs, and in a guest its virtual GPUs; without the virtual functions of a host."""
        return tuple(f for f in self.functions if f.class_code in GPU_CLASSES and not f.is_virtual_function)

    @cached_property
    def nvswitches(self) -> tuple[PciFunction, ...]:
        return tuple(f for f in self.functions if f.class_code == NVSWITCH_CLASS)

    @cached_property
    def bridges(self) -> dict[str, Bridge]:
        """Address -> bridge."""
        return shared.once(self._answer, _bridges)

    @cached_property
    def other_display(self) -> tuple[str, ...]:
        """ "vendor:device" of the display devices of other vendors."""
        return tuple(self._answer["other_display"])


def _functions(answer: dict[str, Any]) -> tuple[PciFunction, ...]:
    return tuple(pci_function(address, raw) for address, raw in _known(answer, "functions"))


def _bridges(answer: dict[str, Any]) -> dict[str, Bridge]:
    return {address: bridge(address, raw) for address, raw in _known(answer, "bridges")}


def _known(answer: dict[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    """Sorted by address; what has no PCI address is no device."""
    return sorted((address, raw) for address, raw in answer[kind].items() if ADDRESS.fullmatch(address))


def pci_function(address: str, raw: dict[str, Any]) -> PciFunction:
    numa_node = number(raw["numa_node"])
    return PciFunction(
        address=address,
        stated_device_id=raw["device"],
        chip=raw.get("chip", ""),
        subsystem=f"{raw['subsystem_vendor'] or 0:04x}:{raw['subsystem_device'] or 0:04x}",
        class_code=raw["class"] >> 8,
        stated_driver=raw.get("driver", UNTOLD) or None,
        numa_node=None if numa_node == -1 else numa_node,
        **links(raw),
        framebuffer_bar=framebuffer_bar(raw["resource"]),
        bars=bars(raw["resource"]),
        config_all_ones=raw["all_ones"],
        iommu_group_type=raw["iommu_group_type"] or None,
        is_virtual_function=raw["virtual_function"],
        parents=tuple(raw["parents"]),
    )


def bridge(address: str, raw: dict[str, Any]) -> Bridge:
    return Bridge(address, raw["vendor"], raw["device"], raw.get("driver"), **links(raw), acs=raw["acs"])


def links(raw: dict[str, Any]) -> dict[str, Any]:
    return {
        "link_speed_gts": speed_gts(raw["current_link_speed"]),
        "link_width": lanes(raw["current_link_width"]),
        "maximum_link_speed_gts": speed_gts(raw["max_link_speed"]),
        "maximum_link_width": lanes(raw["max_link_width"]),
    }


def speed_gts(text: str | None) -> float | None:
    """ "16.0 GT/s PCIe" is 16.0; "Unknown" is None."""
    match = re.match(r"(\d+(?:\.\d+)?) GT/s", text or "")
    return float(match[1]) if match else None


def lanes(text: str | None) -> int | None:
    width = number(text) or 0
    return width if 0 < width <= MAXIMUM_LANES else None


def number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?\d+", text) else None


def bars(resource: list[str]) -> tuple[tuple[int, int], ...]:
    """The first six lines of a function's `resource` file: start, end and flags of each BAR."""
    ends = ([int(word, 16) for word in line.split()] for line in resource[:6])
    return tuple((start, end - start + 1 if end else 0) for start, end, _ in ends)


def framebuffer_bar(resource: list[str]) -> tuple[int, int]:
    """The second BAR: number 2 if the first one is 64 bits wide and takes two places (Hopper), else 1."""
    found = bars(resource)
    index = 2 if resource and int(resource[0].split()[2], 16) & IORESOURCE_MEM_64 else 1
    return found[index] if index < len(found) else (0, 0)
