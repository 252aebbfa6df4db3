"""What a healthy machine reaches: from the datasheet, the attributes of a GPU that is not in the tables, or the kind of link."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.cuda import CudaDevice
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.gpu_records import NvLink
from gpudoctor.facts.known import known
from gpudoctor.knowledge.gpus import Gpu as Board
from gpudoctor.model import Skip


class Expected(NamedTuple):
    """The value of a healthy GPU or link (None if unknown) and the rule in words. unlisted: the GPU is not in the tables."""

    value: float | None
    rule: str
    unlisted: bool = False


NOTHING = Expected(None, "")


def gpu(facts: Facts, index: int) -> Gpu | None:
    """The GPU with NVML's index; None if NVML does not list it."""
    try:
        return facts.nvml.gpus[index]
    except (Skip, IndexError):
        return None


def device(facts: Facts, index: int) -> CudaDevice | None:
    """The same GPU as a CUDA device."""
    named = gpu(facts, index)
    try:
        if named:
            return facts.cuda.by_bus_id.get(named.bus_id)
        devices = facts.cuda.devices
    except Skip:
        return None
    return devices[index] if index < len(devices) else None


def active_links(facts: Facts, index: int) -> list[NvLink]:
    """The active NVLinks; empty if NVML has no answer."""
    found = facts.once(_links)
    return found[index].active if index < len(found) else []


def switched_links(facts: Facts, index: int) -> list[NvLink]:
    """Those that lead to a switch."""
    found = facts.once(_links)
    return found[index].switched if index < len(found) else []


def links_by_remote(facts: Facts, index: int) -> dict[str | None, list[NvLink]]:
    """The active NVLinks by the bus id to which they lead."""
    found = facts.once(_links)
    return found[index].by_remote if index < len(found) else {}


class _Links(NamedTuple):
    """The active NVLinks of a GPU, those that lead to a switch, and all by the bus id to which they lead."""

    active: list[NvLink]
    switched: list[NvLink]
    by_remote: dict[str | None, list[NvLink]]


def _links(facts: Facts) -> Iterator[_Links]:
    for found in known(lambda: facts.nvml.gpus, ()):
        active: list[NvLink] = known(lambda found=found: found.active_nvlinks, [])  # type: ignore[misc]
        by_remote: dict[str | None, list[NvLink]] = {}
        for link in active:
            by_remote.setdefault(link.remote_bus_id, []).append(link)
        yield _Links(active, [link for link in active if link.remote == "switch"], by_remote)


def board(facts: Facts, index: int) -> Board | None:
    """The GPU's datasheet; None for an unknown GPU, or for a MIG slice, which is not the whole board."""
    found = facts.once(_boards)
    return found[index] if 0 <= index < len(found) else None


def _boards(facts: Facts) -> Iterator[Board | None]:
    """Of all GPUs that NVML or CUDA lists."""
    for index in range(max(len(known(lambda: facts.nvml.gpus, ())), len(known(lambda: facts.cuda.devices, ())))):
        found = device(facts, index)
        yield None if found is None or is_mig(found) else knowledge.gpu_by_name(found.name)


def is_mig(found: CudaDevice) -> bool:
    return found.uuid.startswith("MIG-")


def tflops(facts: Facts, index: int, dtype: str) -> Expected:
    """The rate of a large matrix product, of a dtype in Peaks ("fp64" means the tensor cores' rate if they support it)."""
    sheet = board(facts, index)
    if sheet and (listed := _listed_tflops(sheet.name, dtype)):
        return listed
    share = knowledge.reachable_share(dtype, sheet, _architecture(facts, index))
    return NOTHING if share is None else _own_tflops(facts, index, dtype, share)


@cache
def _listed_tflops(board: str, dtype: str) -> Expected | None:
    """None if the datasheet does not have this rate."""
    sheet = knowledge.gpu_by_name(board)
    peak = _peak(sheet, dtype) if sheet else None
    if peak is None:
        return None
    share = knowledge.reachable_share(dtype, sheet, None)
    return NOTHING if share is None else Expected(peak * share, f"{share:.0%} of the datasheet's {peak:g}")


def _peak(sheet: Board, dtype: str) -> float | None:
    peaks = sheet.peak_tflops
    if dtype == "fp64" and peaks.fp64_tensor:
        return peaks.fp64_tensor
    peak: float | None = getattr(peaks, dtype)
    return peak


def _own_tflops(facts: Facts, index: int, dtype: str, share: float) -> Expected:
    found = device(facts, index)
    if found is None:
        return NOTHING
    rate = knowledge.operations_per_clock(found.compute_capability).get(dtype)
    sms, clock = found.attributes.get("multiprocessors"), found.attributes.get("clock_khz")
    if not rate or not sms or not clock:
        return NOTHING
    peak = rate * sms * clock / 1e9
    return _from_its_own(found, peak * share, f"{share:.0%} of {peak:.3g} computed from {sms} SMs × {clock // 1000} MHz")


def memory_gb_per_s(facts: Facts, index: int) -> Expected:
    """The rate of reads, writes or copies, with bytes read and bytes written added up."""
    sheet = board(facts, index)
    share = knowledge.reachable_share("memory", sheet, _architecture(facts, index))
    if share is None:
        return NOTHING
    if sheet:
        return Expected(sheet.memory_gb_per_s * share, f"{share:.0%} of the datasheet's {sheet.memory_gb_per_s:g}")
    found = device(facts, index)
    if found is None or is_mig(found):  # a slice does not report its part of the memory's width
        return NOTHING
    clock, bits = found.attributes.get("memory_clock_khz"), found.attributes.get("memory_bus_bits")
    if not clock or not bits:
        return NOTHING
    peak = 2 * clock * bits / 8 / 1e6
    return _from_its_own(found, peak * share, f"{share:.0%} of {peak:.0f} computed from {clock // 1000} MHz × {bits} bit")


def _from_its_own(found: CudaDevice, value: float, rule: str) -> Expected:
    if is_mig(found):
        return Expected(value, f"{rule} (a MIG slice)")
    return Expected(value, f"{rule} (this GPU is not in the tables)", unlisted=True)


def _architecture(facts: Facts, index: int) -> str | None:
    found = gpu(facts, index)
    return known(lambda: found.architecture) if found else None


def pcie_gb_per_s(facts: Facts, index: int) -> Expected:
    """One direction of page-locked memory over the fastest link that card and slot support together."""
    found = gpu(facts, index)
    link = known(lambda: (found.maximum_pcie_generation, found.maximum_pcie_width)) if found else None
    return pcie(*link) if link else NOTHING


def pcie(generation: int, width: int) -> Expected:
    """Like pcie_gb_per_s, for any link."""
    rate, share = knowledge.pcie_gb_per_s(generation, width), knowledge.pcie_share(generation)
    if rate is None or share is None:
        return NOTHING
    return Expected(rate * share, f"{share:.0%} of PCIe {generation} x{width}: {rate:.1f}")


def nvlink(facts: Facts, index: int, all_reduce: bool = False) -> Expected:
    """One direction over all of a GPU's active NVLinks: a copy to another GPU, or the bus bandwidth of an all-reduce."""
    links = active_links(facts, index)
    versions = [int(float(link.version)) for link in links if link.version]
    if not versions:
        return NOTHING
    rate, shares = knowledge.nvlink_gb_per_s(versions[0], len(links)), knowledge.nvlink_shares(versions[0])
    if rate is None or shares is None:
        return NOTHING
    share = shares[1] if all_reduce else shares[0]
    return Expected(rate * share, f"{share:.0%} of NVLink {versions[0]} × {len(links)} links: {rate:g}")
