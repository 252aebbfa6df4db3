"""The driver on Fedora from RPM Fusion, whose akmods compiles the module.

https://rpmfusion.org/Howto/NVIDIA
"""

from __future__ import annotations

from gpudoctor.fixes import redhat
from gpudoctor.fixes.distribution import Distribution, Lines

MIRRORS = "https://mirrors.rpmfusion.org"
BUILD = "sudo akmods --force"
DEVELOPMENT = '"kernel-devel-uname-r == $(uname -r)"'
LEGACY = (470, 580)  # branches with separate packages: akmod-nvidia-580xx
OPEN = "echo '%_with_kmod_nvidia_open 1' | sudo tee /etc/rpm/macros.nvidia-kmod && "
fabric_manager, toolkit = redhat.fabric_manager, redhat.toolkit


def install(host: Distribution, branch: int) -> Lines:
    legacy = f"-{branch}xx" if branch in LEGACY and not host.wants_open(branch) else ""
    names = f"akmod-nvidia{legacy} xorg-x11-drv-nvidia{legacy}-cuda"
    asked = OPEN if host.wants_open(branch) else ""
    command = f"{repositories(host)}{asked}sudo dnf install --refresh --allowerasing --best {names} {DEVELOPMENT} && {BUILD}"
    return Lines(command, redhat.remove(host, names))


def repositories(host: Distribution) -> str:
    if host.source == "rpmfusion":
        return ""
    release = "fedora" if host.distribution == "fedora" else "el"
    number = "$(rpm -E %fedora)" if release == "fedora" else "$(rpm -E %rhel)"
    packages = " ".join(
        f"{MIRRORS}/{kind}/{release}/rpmfusion-{kind}-release-{number}.noarch.rpm" for kind in ("free", "nonfree")
    )
    return f"sudo dnf install {packages} && "


def module(host: Distribution) -> Lines:
    return Lines(f"sudo dnf install {DEVELOPMENT} && {BUILD}", loads=True)


def reinstall(host: Distribution) -> Lines:
    return Lines(f"sudo dnf reinstall 'akmod-nvidia*' 'xorg-x11-drv-nvidia*' && {BUILD} --rebuild")


def libraries(host: Distribution) -> Lines:
    legacy = f"-{host.branch}xx" if host.has(rf"nvidia-{host.branch}xx") else ""
    return Lines(f"sudo dnf install xorg-x11-drv-nvidia{legacy}-cuda xorg-x11-drv-nvidia{legacy}-cuda-libs")


def sign(host: Distribution) -> Lines:
    return Lines("sudo kmodgenca -a; sudo mokutil --import /etc/pki/akmods/certs/public_key.der", kind="set")
