"""Virtual machines of a text, WSL among them: what their settings give them against what the GPU and its programs need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import shut_down_wsl
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.judging.texts.windows import FIRST_BUILD, OLD_WINDOWS, WAYS_OF_WINDOWS, WHY_OLD_WINDOWS, WINDOWS
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

FIRMWARE = Problem(
    id="vm-firmware-without-large-window",
    title="The virtual machine's firmware has no room for the GPU's memory",
    why="SeaBIOS and the machine type i440fx, QEMU's defaults, map no large region above 4 GB. A data centre GPU needs one as "
    "large as its memory. OVMF (UEFI) with q35 has it. The guest then needs a boot loader for UEFI.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("In the virtual machine's settings: use OVMF (UEFI) and the machine type q35, and attach the GPU as PCI Express"),
    ),
    references=(
        "https://pve.proxmox.com/wiki/PCI_Passthrough",
        "https://www.linux-kvm.org/downloads/lersek/ovmf-whitepaper-c770f8c.txt",
    ),
)
SWAPPED = Problem(
    id="host-memory-swapped",
    title="The host's memory is full, and programs wait for swap",
    why="What does not fit in memory is moved to the disk and read back when it is needed, which is a hundred times slower. The "
    "waits look like a slow disk, and the GPU is idle meanwhile.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Show which programs use the memory",
            "ps -eo rss,pid,args --sort=-rss | head; cat /sys/fs/cgroup/memory.max",
            verify="vmstat 2 3",
            kind="read",
        ),
        Fix("Use less memory: fewer data loader workers, smaller caches, weights that are loaded by mmap (safetensors)"),
    ),
    references=("https://man7.org/linux/man-pages/man8/vmstat.8.html",),
)
PROBLEMS = (FIRMWARE, SWAPPED)

_NO_ROOM = re.compile(r"BAR ?\d[^\n]*(?:no space for|failed to assign|can't assign)|BAR\d is 0M @ 0x0")
_HOSTPCI = re.compile(r"(?m)^hostpci\d+: ")
_UEFI = re.compile(r"(?m)^bios: ovmf|<loader\b|firmware=['\"]efi|OVMF_CODE|-bios \S*OVMF|edk2-x86_64")
_OF_PROXMOX = re.compile(r"(?m)^(?:\S*[#$>] ?)?(?:sudo )?qm config (?P<vmid>\d+)(?P<filter>[^\n]*)$")
_OLD_MACHINE = re.compile(
    r"""
    machine=['\"](?:pc-i440fx[\w.-]*|pc)['\"]
    | -(?:machine|M)\ (?:type=)?pc(?:-i440fx\S*|,|\s)
    """,
    re.VERBOSE,
)
_DOMAIN = re.compile(r"virsh (?:dumpxml|edit) (?P<name>[\w.-]+)")


def firmware(facts: Facts) -> Iterator[Finding]:
    """A guest cannot map a region of its GPU, and its settings name no UEFI."""
    text = "\n".join(passages(facts))
    proxmox, libvirt = _OF_PROXMOX.search(text), _OLD_MACHINE.search(text)
    is_whole = proxmox and (not proxmox["filter"].strip() or "bios" in proxmox["filter"])
    if not _NO_ROOM.search(text) or _UEFI.search(text):
        return
    if proxmox and is_whole and _HOSTPCI.search(text):
        words = f"qm config {proxmox['vmid']} has no line bios: ovmf, so that the virtual machine starts with SeaBIOS"
        yield _of_proxmox().found(words, {"vmid": proxmox["vmid"]}, confidence=Confidence.LIKELY)
    elif libvirt:
        words = "the virtual machine is of the type i440fx, without UEFI"
        domain = _DOMAIN.search(text)
        evidence = {"chosen_name": domain["name"]} if domain else {}
        yield replace(FIRMWARE, fixes=OF_LIBVIRT).found(words, evidence, confidence=Confidence.LIKELY)


def _of_proxmox() -> Problem:
    return replace(FIRMWARE, fixes=OF_PROXMOX)


OF_PROXMOX = (
    Fix(
        "On the Proxmox host, as root, with the virtual machine shut down: switch to OVMF and q35 (name the storage of the "
        "EFI disk). A guest that was installed with SeaBIOS needs a boot loader for UEFI first",
        "qm set <vmid> --bios ovmf --machine q35 --cpu host --efidisk0 <storage>:1,efitype=4m",
        verify="qm config <vmid>",
        risk="disruptive",
        where="host",
        kind="manual",
    ),
    Fix("Attach the GPU as PCI Express: add ,pcie=1 to its hostpci line"),
)
OF_LIBVIRT = (
    Fix(
        "With the guest shut down: use <os firmware='efi'> and machine='q35' in its definition; a guest that was installed with "
        "SeaBIOS needs a boot loader for UEFI first",
        "virsh edit <chosen_name>",
        verify="virsh dumpxml <chosen_name>",
        risk="disruptive",
        where="host",
        kind="manual",
    ),
)

_VMSTAT = re.compile(
    r"""
    ^[ \t]*r\s+b\s+swpd\s+free\s+(?:buff|inact)\s+(?:cache|active)\s+si\s+so\b[^\n]*\n
    (?P<rows> (?:\s*\d+(?:\s+\d+){12,}[^\n]*\n?)+ )
    """,
    re.MULTILINE | re.VERBOSE,
)
MUCH_SWAPPED = 2000  # KiB/s
_FREE = re.compile(
    r"""
    ^[ \t]*Mem:\s+(?P<total>\S+)\s+\S+\s+\S+\s+\S+\s+\S+\s+(?P<available>\S+)\s*\n\s*Swap:\s+(?P<swap>\S+)\s+(?P<used>\S+)
    """,
    re.MULTILINE | re.VERBOSE,
)
LITTLE, MUCH = 0.05, 0.25
_UNITS = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_WSL_LIMIT = re.compile(r"(?im)^[ \t]*memory\s*=\s*(?P<size>\d+)\s*GB")


def swapped(facts: Facts) -> Iterator[Finding]:
    text = "\n".join(passages(facts))
    rate, used = swap_rate(facts), _swap_used(text)
    if not rate and not used:
        return
    parts = [f"{rate:,.0f} KiB/s are read back from swap"] * bool(rate)
    parts += [f"{used} of swap are used and nearly no memory is available"] * bool(used)
    problem, limit = SWAPPED, _WSL_LIMIT.search(text)
    if limit or known(lambda: facts.system.wsl, 0) == 2:
        problem = replace(SWAPPED, title=OF_WSL, why=WHY_OF_WSL, fixes=(RAISE_IN_WINDOWS, *SWAPPED.fixes))
        parts += [f".wslconfig limits WSL to {limit['size']} GB"] if limit else []
    yield problem.found("; ".join(parts), confidence=Confidence.LIKELY)


def swap_rate(facts: Facts) -> float:
    """KiB/s that vmstat shows as read from swap, without its first line, which counts since the start; 0 if that is little."""
    rates: list[float] = []
    for text in passages(facts):
        for found in _VMSTAT.finditer(text):
            rows = [line.split() for line in found["rows"].splitlines() if line.strip()]
            rates += [float(row[6]) for row in rows[len(rows) > 2 :]]
    mean = sum(rates) / len(rates) if rates else 0
    return mean if mean > MUCH_SWAPPED else 0


def _swap_used(text: str) -> str:
    """How much swap is used, where next to no memory is available."""
    for found in _FREE.finditer(text):
        total, available, used = (_bytes(found[name]) for name in ("total", "available", "used"))
        if total and available < LITTLE * total and used > MUCH * total:
            return found["used"]
    return ""


def _bytes(value: str) -> float:
    number = re.match(r"([\d.]+)([KMGTB]?)", value)
    return float(number[1]) * _UNITS[number[2] or "B"] if number else 0


OF_WSL = "WSL has too little memory, and programs in it wait for swap"
WHY_OF_WSL = (
    "WSL gets half of the computer's memory, or what memory= in .wslconfig says. What does not fit there is moved to a swap file "
    "on the disk and read back when it is needed, which is a hundred times slower."
)
RAISE_IN_WINDOWS = shut_down_wsl(
    "In Windows: raise or delete memory= in %UserProfile%\\.wslconfig, under [wsl2], then shut WSL down",
    verify="free -g",
)
_ON_WINDOWS = re.compile(r"\bWSL|\bdocker-desktop\b|Docker Desktop|^PS [A-Z]:", re.MULTILINE)
_NO_GPU_THERE = re.compile(r"load library failed: libnvidia-ml|no adapters were found|could not select device")


def old_windows(facts: Facts) -> Iterator[Finding]:
    """A container of WSL finds no GPU, and the build of Windows does not share any."""
    text = "\n".join(passages(facts))
    build = WINDOWS.search(text)
    if build and int(build[1]) < FIRST_BUILD and _ON_WINDOWS.search(text) and _NO_GPU_THERE.search(text):
        problem = replace(facts.problems["wsl-dxg-missing"], title=OLD_WINDOWS, why=WHY_OLD_WINDOWS, fixes=WAYS_OF_WINDOWS)
        words = f"Windows is of build {build[1]}; GPUs are shared with WSL and its containers from {FIRST_BUILD}"
        yield problem.found(words, {"build": int(build[1])}, confidence=Confidence.LIKELY)


RULES = (firmware, swapped, old_windows)
