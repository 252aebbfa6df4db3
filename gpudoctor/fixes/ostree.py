"""The driver on Fedora's image-based editions (Silverblue, Kinoite, CoreOS, Universal Blue): packages are layers on an image.

https://rpmfusion.org/Howto/NVIDIA
https://coreos.github.io/rpm-ostree/administrator-handbook/
"""

from __future__ import annotations

from gpudoctor.fixes import rpmfusion
from gpudoctor.fixes.distribution import Distribution, Lines

NO_NOUVEAU = "sudo rpm-ostree kargs --append=rd.driver.blacklist=nouveau,nova_core --append=modprobe.blacklist=nouveau,nova_core"
sign = rpmfusion.sign


def install(host: Distribution, branch: int) -> Lines:
    legacy = f"-{branch}xx" if branch in rpmfusion.LEGACY and not host.wants_open(branch) else ""
    names = f"akmod-nvidia{legacy} xorg-x11-drv-nvidia{legacy}-cuda"
    added = rpmfusion.repositories(host).replace("sudo dnf install ", "sudo rpm-ostree install --apply-live ")
    undo = "" if host.source else f"sudo rpm-ostree uninstall {names}"
    return Lines(f"{added}sudo rpm-ostree install {names} && {NO_NOUVEAU}", undo)


def module(host: Distribution) -> Lines:
    """Kernel and module are built together for each image."""
    return Lines("sudo rpm-ostree upgrade", reboot=True)


def reinstall(host: Distribution) -> Lines:
    return Lines("sudo rpm-ostree upgrade", reboot=True)


libraries = reinstall


def fabric_manager(host: Distribution) -> Lines:
    return Lines("")


def toolkit(host: Distribution, release: str) -> Lines:
    """In a container: Toolbx has the package manager that the image lacks."""
    return Lines("")
