"""The driver on Debian: its own packages if they have the branch, else NVIDIA's repository.

https://wiki.debian.org/NvidiaGraphicsDrivers
https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html
Names read 2026-11-21 from the package indices of bullseye, bookworm and trixie.
"""

from __future__ import annotations

import re

from gpudoctor.fixes import runfile, ubuntu
from gpudoctor.fixes.distribution import IMPORT, UNIMPORT, Distribution, Lines

BRANCHES = {11: 470, 12: 535, 13: 550}  # the branch in each release of Debian
CODENAMES = {11: "bullseye", 12: "bookworm", 13: "trixie"}
KERNELS = {11: "5.10.", 12: "6.1.", 13: "6.12."}
KEPLER = 470  # also in Debian 12, not in later releases
PACKAGES = """'?installed?name("^(lib)?nvidia-|^libcuda1$")?not(?name("container"))'"""
WITH_FABRIC_MANAGER = 580  # in NVIDIA's repository


def toolkit(host: Distribution, release: str) -> Lines:
    return ubuntu.toolkit(host, release) if host.distribution == "debian" else Lines("")


def install(host: Distribution, branch: int) -> Lines:
    if host.distribution != "debian":  # Kali and others: NVIDIA has no repository for them, and their own has one branch
        return Lines("sudo apt update && sudo apt install nvidia-driver", "sudo apt autoremove --purge nvidia-driver")
    name = package(host, branch)
    if name:
        command = f"{sources(host)} && sudo apt update && sudo apt install {kernel(host)} {name}"
        return Lines(command, f"sudo apt autoremove --purge {name}")
    if branch <= KEPLER or not has_repository(host):
        return runfile.install(host, branch)
    return from_nvidia(host, branch)


def has_repository(host: Distribution) -> bool:
    """NVIDIA's repositories for Debian begin with the oldest release of the table."""
    return host.source == "nvidia" or host.major == 0 or host.major >= min(BRANCHES)


def package(host: Distribution, branch: int) -> str:
    """Debian's own package of the branch, or "" if it does not have one."""
    if host.source == "nvidia" or branch > BRANCHES.get(host.major, 0) or (branch <= KEPLER and host.major > 12):
        return ""
    if branch <= KEPLER and host.major == 12:
        return "nvidia-tesla-470-driver"
    return "nvidia-open-kernel-dkms nvidia-driver" if host.wants_open(branch) and host.major >= 12 else "nvidia-driver"


def from_nvidia(host: Distribution, branch: int, also: str = "") -> Lines:
    name = "nvidia-open" if host.wants_open(branch) else "cuda-drivers"
    pin = f"sudo apt install nvidia-driver-pinning-{branch}"
    command = f"{ubuntu.repository(host)}{pin} && sudo apt install {kernel(host)} {name}{also}"
    away = f"sudo apt autoremove --purge {name} nvidia-driver-pinning-{branch}"
    if host.source != "distribution":
        return Lines(command, away)
    return Lines(command, f"{away} cuda-keyring && sudo apt update && sudo apt install {installed(host)}")


def installed(host: Distribution) -> str:
    """The installed package that depends on all of Debian's driver."""
    return next((name for name in host.packages if re.fullmatch(r"nvidia-(tesla-\d+-)?driver", name)), "nvidia-driver libcuda1")


def sources(host: Distribution) -> str:
    """Adds the components of the driver to Debian's own lines; other lines stay."""
    components = "main contrib non-free" + (" non-free-firmware" if host.major >= 12 else "")
    return (
        f"sudo sed -i.bak -E '/^(deb .* {CODENAMES.get(host.major, '[a-z]+')}|Components:)/s/ main( .*)?$/ {components}/' "
        "$(ls /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null)"
    )


def kernel(host: Distribution) -> str:
    """The newest kernel of this flavour with its headers: Debian does not keep headers of replaced kernels.

    >>> kernel(Distribution("debian", "12", kernel="6.1.0-30-cloud-amd64"))
    'linux-image-cloud-amd64 linux-headers-cloud-amd64'
    >>> kernel(Distribution("debian", "12", kernel="6.12.95+deb12-amd64"))
    'linux-image-amd64/bookworm-backports linux-headers-amd64/bookworm-backports'
    """
    flavour = re.sub(r"^[\d.]+(\+\w+)?(-\d[\w.]*)?-", "", host.kernel)
    if not re.fullmatch(r"((cloud|rt)-)?(amd64|arm64)", flavour):
        return "linux-headers-$(uname -r)"
    is_of_release = host.kernel.startswith(KERNELS.get(host.major, ""))
    where = "" if is_of_release else f"/{CODENAMES[host.major]}-backports"
    return f"linux-image-{flavour}{where} linux-headers-{flavour}{where}"


def module(host: Distribution) -> Lines:
    return Lines("sudo apt install dkms linux-headers-$(uname -r) && sudo dkms autoinstall", loads=True)


def module_of_newest_kernel(host: Distribution) -> Lines:
    return Lines(f"sudo apt update && sudo apt install dkms {kernel(host)}") if "image" in kernel(host) else Lines("")


def reinstall(host: Distribution) -> Lines:
    return Lines(f"sudo apt update && sudo apt install --reinstall {PACKAGES}")


def libraries(host: Distribution) -> Lines:
    if not host.driver:
        return Lines("sudo apt update && sudo apt install libcuda1 libnvidia-ml1 nvidia-smi")
    names = ("libcuda1", "nvidia-driver-cuda") if host.source == "nvidia" else ("libcuda1", "libnvidia-ml1", "nvidia-smi")
    return Lines(f"sudo apt update && sudo apt install {ubuntu.exactly(host, *names)}")


def together(host: Distribution) -> Lines:
    """Debian's repository keeps one release: if it is newer, the whole driver is upgraded."""
    if host.source != "distribution" or not host.branch:
        return Lines("")
    return Lines(f"sudo apt update && sudo apt install {kernel(host)} {installed(host)}")


def fabric_manager(host: Distribution) -> Lines:
    """From NVIDIA's repository, since Debian does not package it; the driver must then come from there too."""
    if not host.branch:
        return Lines("")
    if host.source == "nvidia":
        return ubuntu.fabric_manager(host)
    branch = max(host.branch, WITH_FABRIC_MANAGER)
    return from_nvidia(host, branch, f" nvidia-fabricmanager-{branch} libnvidia-nscq-{branch}")._replace(reboot=True)


def sign(host: Distribution) -> Lines:
    return Lines(IMPORT, UNIMPORT, kind="set")
