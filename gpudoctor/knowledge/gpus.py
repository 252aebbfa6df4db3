"""Datasheets of GPUs, and generations by PCI device id: `gpus.yaml`."""

from __future__ import annotations

from functools import cache
from typing import Literal

import msgspec

from gpudoctor.knowledge.tables import Row, Table, load


class Peaks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dense datasheet rates in TFLOPS (int8 in TOPS); None if the chip does not support the type or the figure is not known."""

    fp64: float | None = None
    fp64_tensor: float | None = None
    fp32: float | None = None
    tf32: float | None = None
    fp16: float | None = None
    bf16: float | None = None
    fp8: float | None = None
    int8: float | None = None
    fp4: float | None = None
    fp16_fp16_accumulate: float | None = None
    fp8_fp16_accumulate: float | None = None


class Nvlink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The links of one GPU; `gb_per_s` is the sum of all links in both directions."""

    version: int
    links: int
    gb_per_s: float
    form: str


class Mig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The highest number of MIG instances, and the oldest driver that supports MIG on this GPU."""

    instances: int
    least_driver: str


class Gpu(Row, frozen=True):
    """One board by its NVML name; `unverified` lists the fields without a source."""

    name: str
    device_ids: tuple[int, ...]
    segment: Literal["data centre", "workstation", "consumer", "integrated (SoC)"]
    chip: str
    architecture: str
    compute_capability: tuple[int, int]
    memory_gb: float
    memory_type: str
    memory_gb_per_s: float
    tdp_watts: int
    ecc: Literal["default on", "default off", "optional", "none"]
    peak_tflops: Peaks
    peaks: Literal["read", "derived", "memory"]
    peaks_from_memory: str = ""
    other_names: tuple[str, ...] = ()
    sms: int | None = None
    memory_mib: int | None = None
    boost_mhz: int | None = None
    default_power_watts: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    nvlink: Nvlink | None = None
    mig: Mig | None = None
    techpowerup: str = ""
    unverified: tuple[str, ...] = ()


class DeviceRange(Row, frozen=True):
    """A range of PCI device ids, first and last included, whose GPUs are all of one generation."""

    first: int
    last: int
    architecture: str


class ChipFamily(Row, frozen=True):
    """The letters with which the names of a generation's chips begin: GP of GP102."""

    prefix: str
    architecture: str


class GpuTable(Table, frozen=True):
    device_ranges: tuple[DeviceRange, ...]
    chip_families: tuple[ChipFamily, ...]
    gpus: tuple[Gpu, ...]


@cache
def table() -> GpuTable:
    return load("gpus", GpuTable)


def gpus() -> tuple[Gpu, ...]:
    return table().gpus


def gpu_by_name(name: str) -> Gpu | None:
    """The GPU with this NVML name, with or without the prefix "NVIDIA "; a MIG device's name gives its board."""
    return _by_name().get(_plain(name))


def gpus_by_device_id(device_id: int) -> tuple[Gpu, ...]:
    """Every board with this PCI device id; a few boards share one and differ only in their subsystem id."""
    return tuple(gpu for gpu in gpus() if device_id in gpu.device_ids)


def gpu_by_device_id(device_id: int) -> Gpu | None:
    """The one board with this PCI device id; None if it is not known or several boards share it."""
    found = gpus_by_device_id(device_id)
    return found[0] if len(found) == 1 else None


def architecture_of_device(device_id: int) -> str | None:
    """The generation ("Kepler" to "Blackwell") of a GPU by its PCI device id, without asking the driver."""
    for gpu in gpus_by_device_id(device_id):
        return gpu.architecture
    ranges = table().device_ranges
    return next((row.architecture for row in ranges if row.first <= device_id <= row.last), None)


def architecture_of_chip(chip: str) -> str | None:
    """The generation of a chip by its name, as lspci prints it: "Pascal" for GP102, "Turing" for TU117M."""
    return next((row.architecture for row in table().chip_families if chip.startswith(row.prefix)), None)


def _plain(name: str) -> str:
    return name.casefold().removeprefix("nvidia ").partition(" mig ")[0].strip()


@cache
def _by_name() -> dict[str, Gpu]:
    return {_plain(name): gpu for gpu in gpus() for name in (gpu.name, *gpu.other_names)}
