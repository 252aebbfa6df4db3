"""NVIDIA's PCI functions and the bridges above them, as the kernel shows them in /sys: raw numbers and texts."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

from gpudoctor.worker.probes.machine import Answer, Machine

DEVICES = "/sys/bus/pci/devices"
NVIDIA = 0x10DE
DISPLAY = 0x03
LINK = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")

# The PCIe extended capability list: https://docs.kernel.org/PCI/ and include/uapi/linux/pci_regs.h
EXTENDED_CAPABILITIES = 0x100
ACCESS_CONTROL_SERVICES = 0x000D
ACS_CONTROL = 0x06


def ask(machine: Machine) -> Iterator[Answer]:
    yield machine.ask("pci", lambda: _pci(machine))


def _pci(machine: Machine) -> Dict[str, Any]:
    """{"functions": {address: ...}, "bridges": {address: ...}, "other_display": ["vendor:device"]}"""
    functions, other_display = {}, []
    for address in sorted(os.listdir(machine.path(DEVICES))):
        vendor = _number(machine, address, "vendor")
        if vendor == NVIDIA:
            machine.at("pci", address)
            functions[address] = _function(machine, address)
        elif (_number(machine, address, "class") or 0) >> 16 == DISPLAY:
            other_display.append("%04x:%04x" % (vendor or 0, _number(machine, address, "device") or 0))
    above = sorted({parent for function in functions.values() for parent in function["parents"]})
    bridges = {address: _bridge(machine, address) for address in above}
    return {"functions": functions, "bridges": bridges, "other_display": other_display}


def _function(machine: Machine, address: str) -> Dict[str, Any]:
    config = _config(machine, address)
    return dict(
        _common(machine, address),
        **{name: _number(machine, address, name) for name in ("subsystem_vendor", "subsystem_device")},
        numa_node=_text(machine, address, "numa_node"),
        resource=(_text(machine, address, "resource") or "").splitlines(),
        all_ones=None if config is None else set(config[:64]) == {0xFF},
        iommu_group=_link(machine, address, "iommu_group"),
        iommu_group_type=_text(machine, address, "iommu_group/type"),
        virtual_function=_link(machine, address, "physfn") is not None,
        parents=_parents(machine, address),
    )


def _bridge(machine: Machine, address: str) -> Dict[str, Any]:
    machine.at("pci", address)
    return dict(_common(machine, address), acs=_acs(_config(machine, address)))


def _common(machine: Machine, address: str) -> Dict[str, Any]:
    return dict(
        {name: _number(machine, address, name) for name in ("vendor", "device", "class")},
        **{name: _text(machine, address, name) for name in LINK},
        driver=_link(machine, address, "driver"),
    )


def _link(machine: Machine, address: str, name: str) -> Optional[str]:
    """The name of a link's target; None if there is no link."""
    try:
        return os.path.basename(os.readlink(machine.path(os.path.join(DEVICES, address, name))))
    except OSError:
        return None


def _parents(machine: Machine, address: str) -> List[str]:
    """The bridges above a function, the root port first: the folders of its real path in /sys/devices."""
    folders = os.path.realpath(machine.path(os.path.join(DEVICES, address))).split("/")[:-1]
    return [folder for folder in folders if re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", folder)]


def _text(machine: Machine, address: str, name: str) -> Optional[str]:
    """The text of an attribute; None if the kernel or the device does not have it."""
    try:
        return machine.read(os.path.join(DEVICES, address, name)).strip()
    except OSError:
        return None


def _number(machine: Machine, address: str, name: str) -> Optional[int]:
    text = _text(machine, address, name)
    return int(text, 16) if text else None


def _config(machine: Machine, address: str) -> Optional[bytes]:
    """The configuration space: 4096 bytes for root, the first 64 for other users."""
    try:
        with open(machine.path(os.path.join(DEVICES, address, "config")), "rb") as file:
            return file.read()
    except OSError:
        return None


def _acs(config: Optional[bytes]) -> Union[int, str, None]:
    """The ACS control register of a bridge; None without this capability, "denied" without permission."""
    if config is None or len(config) <= 64:
        return "denied"
    for offset, capability in _extended_capabilities(config):
        if capability == ACCESS_CONTROL_SERVICES:
            return _little(config, offset + ACS_CONTROL, 2)
    return None


def _extended_capabilities(config: bytes) -> Iterator[Tuple[int, int]]:
    """(offset, capability id) of each; stops at invalid data instead of looping."""
    offset, seen = EXTENDED_CAPABILITIES, set()
    while offset >= EXTENDED_CAPABILITIES and offset + 8 <= len(config) and offset not in seen:
        seen.add(offset)
        header = _little(config, offset, 4)
        if header in (0, 0xFFFFFFFF):
            return
        yield offset, header & 0xFFFF
        offset = header >> 20 & 0xFFC


def _little(config: bytes, offset: int, size: int) -> int:
    return int.from_bytes(config[offset : offset + size], "little")
