"""The driver on Arch Linux, which has only the newest release. Older branches are in the AUR.

https://archlinux.org/news/nvidia-590-driver-drops-pascal-support-main-packages-switch-to-open-kernel-modules/
"""

from __future__ import annotations

from gpudoctor.fixes.distribution import IMPORT, UNIMPORT, Distribution, Lines

READY_MADE = {"linux": "nvidia-open", "linux-lts": "nvidia-open-lts"}


def kernel_package(host: Distribution) -> str:
    return f"linux-{host.flavour}" if host.flavour in ("lts", "zen", "hardened", "rt") else "linux"


def install(host: Distribution, branch: int) -> Lines:
    kernel = kernel_package(host)
    if not host.wants_open(branch):
        names = f"nvidia-{branch}xx-dkms nvidia-{branch}xx-utils"
        return Lines(f"sudo pacman -Syu {kernel}-headers && yay -S {names}", "" if host.source else f"sudo pacman -Rs {names}")
    module = READY_MADE.get(kernel, f"nvidia-open-dkms {kernel}-headers")
    if host.has("^nvidia-open-dkms$"):
        module = f"nvidia-open-dkms {kernel}-headers"
    return Lines(
        f"sudo pacman -Syu {module} nvidia-utils", "" if host.source else f"sudo pacman -Rs {module.split()[0]} nvidia-utils"
    )


def module(host: Distribution) -> Lines:
    """Kernel and module match only within one state of the repositories, so only a full upgrade is safe."""
    if host.has("dkms"):
        return Lines(f"sudo pacman -S --needed {kernel_package(host)}-headers && sudo dkms autoinstall", loads=True)
    return Lines("sudo pacman -Syu", reboot=True)


def reinstall(host: Distribution) -> Lines:
    names = sorted(name for name in host.packages if name.startswith("nvidia") and "container" not in name)
    return Lines(f"sudo pacman -Syu {' '.join(names) or 'nvidia-open nvidia-utils'}")


def libraries(host: Distribution) -> Lines:
    return Lines("sudo pacman -Syu nvidia-utils")


def fabric_manager(host: Distribution) -> Lines:
    return Lines("")


def toolkit(host: Distribution, release: str) -> Lines:
    return Lines("sudo pacman -Syu cuda", "" if host.has("^cuda$") else "sudo pacman -Rs cuda")


def sign(host: Distribution) -> Lines:
    return Lines(IMPORT, UNIMPORT, kind="set")
