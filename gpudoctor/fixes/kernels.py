"""Packages of kernels and their headers, for the kernel that runs: Ubuntu's clouds, Proxmox and Jetson have their own.

https://ubuntu.com/kernel/variants
https://pve.proxmox.com/wiki/Proxmox_VE_Kernel
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpudoctor.facts.families import shown_by
from gpudoctor.fixes.distribution import Distribution
from gpudoctor.model import Fix

NEWEST = "linux-image-generic linux-headers-generic"
OF_RUNNING = "linux-headers-$(uname -r)"
_MANAGERS = {"debian": "apt", "rhel": "dnf|yum", "suse": "zypper", "arch": "pacman|yay"}

# Flavours with a package linux-FLAVOUR, which brings the kernel and its headers.
_OF_UBUNTU = (
    "aws",
    "azure",
    "gcp",
    "oracle",
    "ibm",
    "gke",
    "gkeop",
    "kvm",
    "lowlatency",
    "nvidia",
    "raspi",
    "intel-iotg",
    "realtime",
)
_HWE = {"20.04": (5, 4), "22.04": (5, 15), "24.04": (6, 8)}
"""Releases of Ubuntu with newer kernels in linux-generic-hwe-RELEASE, and the version of their first kernel."""
_ONLY_HWE = {(5, 8): "20.04", (5, 11): "20.04", (5, 13): "20.04", (5, 19): "22.04", (6, 2): "22.04", (6, 5): "22.04"}
_ONLY_HWE |= {(6, 11): "24.04", (6, 14): "24.04", (6, 17): "24.04"}


def spoken(fixes: Iterable[Fix], machine: Distribution, kernel: str) -> Iterator[Fix]:
    """kernel: the running one, "" if unknown. Its name also tells which package manager the machine has."""
    fixes = tuple(fixes)
    families = shown_by(kernel, ()) if not machine.family else ()
    others = [names for family, names in _MANAGERS.items() if families and family not in families]
    foreign = re.compile(rf"\b(?:{'|'.join(others)})\b(?! -Q)") if others else None
    kept = [fix for fix in fixes if not (foreign and foreign.search(fix.command))]
    for fix in kept or fixes:
        yield replace(fix, command=_of(fix.command, machine, kernel), undo=_of(fix.undo, machine, kernel))


def _of(command: str, machine: Distribution, kernel: str) -> str:
    if NEWEST in command:
        command = command.replace(NEWEST, newest(machine, kernel))
    command = command.replace(OF_RUNNING, headers(kernel))
    if "uek" in kernel:
        command = re.sub(r"\bkernel-devel\b", "kernel-uek-devel", command)
    arch = re.search(r"-(lts|zen|hardened|rt)$", kernel)
    if arch and "pacman" in command:
        command = command.replace(" linux-headers", f" linux-{arch[1]}-headers")
    suse = re.search(r"-1[56]0\d{3}\.\S*-(azure|rt|64kb)$", kernel)
    return command.replace("kernel-default-devel", f"kernel-{suse[1]}-devel") if suse else command


def newest(machine: Distribution, kernel: str) -> str:
    """The packages of the newest kernel of the running one's flavour."""
    number = re.match(r"(\d+)\.(\d+)", kernel)
    version = (int(number[1]), int(number[2])) if number else (0, 0)
    if kernel.endswith("-pve"):
        return "proxmox-default-kernel proxmox-default-headers"
    if re.search(r"-(?:cloud-)?(?:amd64|arm64)$", kernel):
        flavour = re.search(r"(?:cloud-)?(?:amd64|arm64)$", kernel)[0]  # type: ignore[index]
        return f"linux-image-{flavour} linux-headers-{flavour}"
    for flavour in _OF_UBUNTU:
        if re.search(rf"\d-{flavour}(?:-64k)?$", kernel):
            return f"linux-{flavour}{'-64k' * kernel.endswith('-64k')}"
    release = machine.version if machine.is_ubuntu else _ONLY_HWE.get(version, "")
    if release in _HWE and version > _HWE[release] and kernel.endswith("-generic"):
        return f"linux-image-generic-hwe-{release} linux-headers-generic-hwe-{release}"
    return "linux-image-amd64 linux-headers-amd64" if machine.distribution == "debian" else NEWEST


def headers(kernel: str) -> str:
    if kernel.endswith("-pve"):
        return "proxmox-headers-$(uname -r)"
    return "nvidia-l4t-kernel-headers" if kernel.endswith("-tegra") else OF_RUNNING
