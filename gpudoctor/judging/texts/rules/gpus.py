"""What one tool of a text counts or measures against another: GPUs on the bus and in the driver, memory, links."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.facts.pci import PciFunction
from gpudoctor.judging.driver.nvlink_bridges import of_bridge
from gpudoctor.judging.texts.rules.inputs import is_blocked_by_storage
from gpudoctor.judging.texts.rules.places import is_memory_full
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding, Fix, Skip

MEMORY_SHARE = 0.25
MUCH_MIB = 8192  # of a GPU whose size the text does not show
BUSY, LOW = 90, 0.5  # percent; share of the highest clock
RESERVED = ("vfio-pci", "pci-stub")
LOCKED = "A busy GPU runs at a low clock"
WHY_LOCKED = (
    "The driver reports neither heat nor power nor idleness as the reason, so the clocks were probably locked (nvidia-smi -lgc) "
    "and never released."
)
WHY_BRIDGE = (
    "All links of the cards are down, and the bridge is what they have in common. Until it is seated, or if it fits other cards "
    "only, their traffic crosses PCIe."
)
SLOW_START = re.compile(
    r"""
    (?:first|every|each|start|init|begin|launch|nvidia-smi)[^.\n]{0,60}?
    \b(?:takes|took|needs|hangs\ for)\b[^.\n]{0,30}?
    \b(\d+)\s*(?:s|sec|secs|seconds|min|minutes)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
SLOW_SECONDS = 2


def fewer_than_on_bus(facts: Facts) -> Iterator[Finding]:
    """lspci lists more GPUs than nvidia-smi."""
    gpus = [gpu for gpu in known(lambda: facts.pci.gpus, ()) if not _is_reserved(gpu)]
    on_bus = [gpu.address for gpu in gpus]
    listed = known(lambda: facts.nvml.count, 0)
    if not 0 < listed < len(on_bus) or known(lambda: facts.driver.nvidia_smi) is None or facts.shown.is_in_container:
        return
    shown = set(facts.nvml.reachable)
    absent = [address for address in on_bus if address not in shown] if any(address in shown for address in on_bus) else []
    words = f"lspci lists {len(on_bus)} GPUs, nvidia-smi only {listed}" + (f": {', '.join(absent)} missing" if absent else "")
    first = absent[0] if absent else "PCI_ADDRESS"
    evidence = {"gpu": first, "slot": first.rpartition(".")[0] or "NVRM", "on_bus": len(on_bus), "listed": listed}
    found = facts.problems["gpu-missing-from-driver"].found(words, evidence, confidence=Confidence.LIKELY)
    yield replace(found, because="gpu-fallen-off-bus-probe")


def fewer_by_count(facts: Facts) -> Iterator[Finding]:
    """Both lists were only counted: `lspci | grep -c` of controllers, and `nvidia-smi -L | wc -l`."""
    text = "\n".join(passages(facts))
    on_bus, listed = _COUNT_ON_BUS.search(text), _COUNT_LISTED.search(text)
    if on_bus and listed and 0 < int(listed[1]) < int(on_bus[1]):
        words = f"lspci counts {on_bus[1]} GPUs, nvidia-smi only {listed[1]}"
        evidence = {"gpu": "PCI_ADDRESS", "slot": "NVRM", "on_bus": int(on_bus[1]), "listed": int(listed[1])}
        found = facts.problems["gpu-missing-from-driver"].found(words, evidence, confidence=Confidence.LIKELY)
        yield replace(found, because="gpu-fallen-off-bus-probe")


# The audio function of a card is counted too if grep looks for the vendor alone.
_COUNT_ON_BUS = re.compile(
    r"""
    lspci\b[^\n]*grep\b[^\n]*(?: 3D | VGA | \[?030 | Device\ \w{4} )[^\n]*\n\s*(\d+)\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_COUNT_LISTED = re.compile(r"(?m)nvidia-smi (?:-L|--list-gpus) *\| *(?:wc -l|grep -c \S+)\s*\n\s*(\d+)\s*$")


def _is_reserved(gpu: PciFunction) -> bool:
    """For virtual machines."""
    return known(lambda: gpu.driver) in RESERVED


def held_low(facts: Facts) -> Iterator[Finding]:
    """A busy GPU at less than half of its highest clock, for no reason that the driver names."""
    for gpu in known(lambda: facts.nvml.gpus, ()):
        with suppress(Skip):
            now, most, load = gpu.clocks_mhz["sm"], gpu.maximum_clocks_mhz["sm"], gpu.get("UtilizationRates.gpu")
            if load >= BUSY and now < LOW * most and not gpu.clock_reasons:
                words = f"GPU {gpu.index} is {load} % busy at {now} of {most} MHz, and no reason is reported"
                evidence = {"index": gpu.index, "sm_mhz": now, "most_mhz": most}
                problem = replace(facts.problems["application-clocks-lowered"], title=LOCKED, why=WHY_LOCKED)
                yield problem.found(words, {**evidence, "address": gpu.selector}, gpu.index, Confidence.LIKELY)


def empty_mig(facts: Facts) -> Iterator[Finding]:
    """MIG is on, and nvidia-smi lists no instance."""
    on = [gpu for gpu in known(lambda: facts.nvml.gpus, ()) if _is_in_mig_mode(gpu)]
    if on and (any(_EMPTY.search(text) for text in passages(facts)) or _lists_no_instance(facts)):
        words = f"MIG is enabled on GPU {', '.join(str(gpu.index) for gpu in on)}, and no instance exists"
        evidence = {"index": on[0].index, "gpus": [gpu.index for gpu in on]}
        yield facts.problems["mig-enabled-without-instances"].found(words, evidence, confidence=Confidence.LIKELY)


def _lists_no_instance(facts: Facts) -> bool:
    """`nvidia-smi -L` names the instances of each GPU below it."""
    texts = list(passages(facts))
    return any(_LISTED.search(text) for text in texts) and not any(_INSTANCE.search(text) for text in texts)


def _is_in_mig_mode(gpu: Gpu) -> bool:
    """Queries can show the mode without what is pending."""
    return bool(known(lambda: gpu.get("MigModeShown")) or known(lambda: gpu.mig_mode.current))


def held_by_others(facts: Facts) -> Iterator[Finding]:
    """Programs that hold much of a GPU's memory: nothing alone, but the cause where memory runs out."""
    sizes = list(filter(None, map(_memory, known(lambda: facts.nvml.gpus, ()))))
    programs = facts.shown.programs or tuple(_listed(known(lambda: facts.nvml.gpus, ())))
    large = [one for one in programs if one["mib"] and one["mib"] > (MEMORY_SHARE * min(sizes) if sizes else MUCH_MIB)]
    if large:
        words = ", ".join(f"{one['name'] or 'a process'} (pid {one['pid']}) with {one['mib']:,} MiB" for one in large)
        evidence = {"pids": ",".join(one["pid"] for one in large), "used_mib": [one["mib"] for one in large]}
        found = facts.problems["other-process-using-gpu"].found(words, evidence, confidence=Confidence.LIKELY)
        yield replace(found, is_clue=True)


def _listed(gpus: Iterable[Gpu]) -> Iterator[dict[str, Any]]:
    """The programs in the table of nvidia-smi."""
    for gpu in gpus:
        for one in known(lambda gpu=gpu: gpu.processes, ()):  # type: ignore[misc]
            if one.used_mib and one.kind == "compute":
                yield {"pid": str(one.pid), "name": one.name, "mib": one.used_mib}


def _memory(gpu: Gpu) -> int | None:
    return known(lambda: gpu.memory_total_mib)


def _is_off(gpu: Gpu) -> bool:
    return known(lambda: not gpu.persistence_mode, False)


def stuck_processes(facts: Facts) -> Iterator[Finding]:
    """A process with the GPU open that waits in the kernel, or whose parent does not collect it."""
    stuck = {pid: one for pid, one in facts.shown.processes.items() if one["state"] in "DZ"}
    held = [pid for pid in stuck if pid in facts.shown.holders] or [
        pid for pid, one in stuck.items() if re.search(r"python|nvidia|cuda|torch|vllm", one["command"])
    ]
    if held and _is_about_gpus(facts) and not is_memory_full(facts) and not is_blocked_by_storage(facts):
        pid = held[0]
        state = "waits in the kernel (state D)" if stuck[pid]["state"] == "D" else "has ended, but was not collected (state Z)"
        words = f"process {pid} ({stuck[pid]['command'].strip()}) {state} and keeps its GPU memory"
        evidence = {"pids": ",".join(held), "states": [stuck[one]["state"] for one in held]}
        yield facts.problems["gpu-process-stuck"].found(words, evidence, confidence=Confidence.LIKELY)


def _is_about_gpus(facts: Facts) -> bool:
    """Not the ended workers of a program, in a text about something else."""
    return bool(known(lambda: facts.nvml.count, 0)) or any(_GPU_WORDS.search(text) for text in passages(facts))


_GPU_WORDS = re.compile(r"(?i)\bgpus?\b|nvidia|\bcuda\b|nccl")


def slow_start(facts: Facts) -> Iterator[Finding]:
    """Persistence mode is off, and the text says how long a start takes."""
    off = [gpu.index for gpu in known(lambda: facts.nvml.gpus, ()) if _is_off(gpu)]
    matches = map(SLOW_START.search, passages(facts))
    seconds = next((int(match[1]) for match in matches if match), 0)
    if off and seconds > SLOW_SECONDS:
        words = f"persistence mode is off on GPU {', '.join(map(str, off))}, and a start takes {seconds} s"
        evidence = {"seconds": seconds, "gpus": off}
        yield facts.problems["persistence-mode-off-slow-init"].found(words, evidence, confidence=Confidence.LIKELY)


def narrow_link(facts: Facts) -> Iterator[Finding]:
    """A query shows fewer lanes than card and slot have, and nothing about a virtual machine."""
    for gpu in known(lambda: facts.nvml.gpus, ()):
        with suppress(Skip):
            yield from _narrow(facts, gpu)


def _narrow(facts: Facts, gpu: Gpu) -> Iterator[Finding]:
    lanes, most = gpu.pcie_width, gpu.maximum_pcie_width
    if lanes < most and known(lambda: gpu.virtualization_mode) is None:
        evidence = {"link": gpu.selector, "lanes": lanes, "possible_lanes": most}
        words = f"GPU {gpu.index} has x{lanes} of x{most} lanes"
        problem = facts.problems["pcie-width-downgraded"]
        problem = replace(problem, fixes=(SLOT, *problem.fixes))
        yield problem.found(words, evidence, gpu.index, Confidence.LIKELY)


SLOT = Fix(
    "Find out how many lanes the slot has (the manual of the mainboard): a slot of the chipset has four, and an M.2 drive or a "
    "second card can share the lanes of the first slot",
    "lspci -tv; sudo lspci -vv | grep -E '^[0-9a-f].*(VGA|3D|bridge)|LnkCap:|LnkSta:'",
    kind="read",
    needs=("root",),
)


def inactive_bridge(facts: Facts) -> Iterator[Finding]:
    """Every link is inactive, although the text names a bridge."""
    texts = "\n".join(passages(facts))
    states = set(_LINK_STATE.findall(texts))
    if _BRIDGE.search(texts) and (states == {"<inactive>"} or _INACTIVE.search(texts)):
        words = "nvidia-smi nvlink reports every link as inactive, although the text names an NVLink bridge"
        problem = replace(of_bridge(facts.problems["nvlink-link-down"]), why=WHY_BRIDGE)
        yield problem.found(words, {"links": "inactive"}, confidence=Confidence.LIKELY)


def translating_iommu(facts: Facts) -> Iterator[Finding]:
    """The kernel's parameters make the IOMMU translate, and the GPUs exchange data wrongly or not at all."""
    line = known(lambda: facts.system.command_line, "")
    on = next((word for word in line.split() if re.fullmatch(r"(?:(?:amd_|intel_)?iommu)=(?:on|force|1)", word)), None)
    is_fault = any(_PEERS.search(text) and _WRONG.search(text) for text in passages(facts))
    refused = next(filter(None, map(_IO_FAULT.search, passages(facts))), None)
    if refused and is_fault and "iommu=pt" not in line:
        words = f"the IOMMU refused an access of the GPU at {refused[1] or refused[2]}, and GPUs exchange data"
        yield facts.problems["iommu-translates-peer-traffic"].found(words, {"log": refused[0]}, confidence=Confidence.LIKELY)
    elif on and "iommu=pt" not in line and is_fault:
        words = f"the kernel was started with {on} and without iommu=pt, so the IOMMU translates transfers between GPUs"
        yield facts.problems["iommu-translates-peer-traffic"].found(words, {"command_line": on}, confidence=Confidence.LIKELY)


def redirecting_bridges(facts: Facts) -> Iterator[Finding]:
    """ACS of a PCIe bridge sends traffic between GPUs to the CPU, and transfers between GPUs hang or are slow."""
    is_fault = any(_PEERS.search(text) and _WRONG.search(text) for text in passages(facts))
    if is_fault and any(_REDIRECTS.search(text) for text in passages(facts)):
        words = "PCIe bridges redirect traffic between GPUs to the CPU (ACSCtl with ReqRedir+)"
        yield facts.problems["nccl-p2p-hang-acs-iommu"].found(words, {"bits": "ReqRedir+"}, confidence=Confidence.LIKELY)


def far_process(facts: Facts) -> Iterator[Finding]:
    """A process that may use only CPUs of another NUMA node than those of all its GPUs."""
    for pid, cpus in facts.shown.pinned.items():
        gpus = _gpus_of(facts, pid)
        near = [facts.shown.near_cpus[gpu] for gpu in gpus if gpu in facts.shown.near_cpus]
        if near and len(near) == len(gpus) and not any(set(cpus) & set(each["cpus"]) for each in near):
            words = f"process {pid} uses GPU {', '.join(gpus)}, but may run only on CPUs of another NUMA node"
            evidence = {"pid": pid, "node": near[0]["node"] or 0}
            yield facts.problems["numa-affinity-wrong"].found(words, evidence, confidence=Confidence.LIKELY)


def _gpus_of(facts: Facts, pid: str) -> list[str]:
    """The indexes of the GPUs that a process uses; all GPUs of the text if it does not show them."""
    used = {_address(one.get("gpu", "")) for one in facts.shown.programs if one["pid"] == pid} - {""}
    indexes = {_address(gpu.bus_id): str(gpu.index) for gpu in known(lambda: facts.nvml.gpus, ())} if used else {}
    found = [indexes[address] for address in sorted(used) if address in indexes]
    return found if used else list(facts.shown.near_cpus)


def _address(text: str) -> str:
    """bus, device and function of a PCI address, without its domain."""
    return text.lower().partition(":")[2]


_IO_FAULT = re.compile(
    r"""
    nvidia\ (?:[\da-f]{4}:)?([\da-f]{2}:[\da-f]{2})\.\d:\ AMD-Vi:\ Event\ logged\ \[IO_PAGE_FAULT
    | DMAR:\ \[DMA\ (?:Read|Write)[^\]\n]*\]\ Request\ device\ \[(?:[\da-f]{4}:)?([\da-f]{2}:[\da-f]{2})\.0\]\ fault
    """,
    re.VERBOSE,
)
_REDIRECTS = re.compile(r"ACSCtl:\s+SrcValid[+-] TransBlk[+-] (?:ReqRedir\+|ReqRedir- CmpltRedir\+)")
_LISTED = re.compile(r"nvidia-smi (?:-L|--list-gpus)\s*\nGPU 0: .*UUID: GPU-")
_INSTANCE = re.compile(r"^\s*MIG [\w.+]+ +Device|\bMIG-[0-9a-f]{8}", re.MULTILINE)
_EMPTY = re.compile(
    r"""
    No\ (?:GPU|compute)\ instances\ found | No\ MIG(?:-enabled)?\ devices\ found
    | \|\ MIG\ devices:[\s\S]{0,900}?\|=+\+[=+]*\|\s*\n\s*\+-+\+  # a table without rows
    """,
    re.VERBOSE,
)
_INACTIVE = re.compile(r"(?i)all links are inactive")
_LINK_STATE = re.compile(r"(?m)^\s*Link \d+: (<inactive>|\d)")
_BRIDGE = re.compile(r"(?i)\bbridged?\b|nvlink(?:ed)? (?:installed|connected)")
_PEERS = re.compile(r"(?i)\bp2p\b|peer|nccl|all.?reduce|multi.?gpu|data.?parallel")
_WRONG = re.compile(r"(?i)wrong|corrupt|garbage|hang|stuck|freez|slow|nan\b|accuracy")

RULES = (
    narrow_link,
    inactive_bridge,
    translating_iommu,
    redirecting_bridges,
    fewer_than_on_bus,
    fewer_by_count,
    held_low,
    empty_mig,
    held_by_others,
    stuck_processes,
    slow_start,
    far_process,
)
