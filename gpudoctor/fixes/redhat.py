"""The driver on Red Hat Enterprise Linux, its rebuilds and Amazon Linux, from NVIDIA's repository.

https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html
https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/advanced-options.html
https://github.com/NVIDIA/gpu-driver-container/issues/585 (names of Fabric Manager)
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoctor.fixes.distribution import FABRIC_UNNUMBERED_FROM, IMPORT, UNIMPORT, Distribution, Lines

REPOSITORY = "https://developer.download.nvidia.com/compute/cuda/repos"
BUILDER = "sudo dnf install dkms"
EPEL = "https://dl.fedoraproject.org/pub/epel/epel-release-latest-{}.noarch.rpm"
MODULAR = (8, 9, 2023)  # later releases have no module streams


def install(host: Distribution, branch: int) -> Lines:
    name = "nvidia-open" if host.wants_open(branch) else "cuda-drivers"
    return Lines(prepare(host) + select(host, branch) + f"sudo dnf install --allowerasing {name}", remove(host, name))


def remove(host: Distribution, names: str) -> str:
    """Only where there was no driver: what replaced packages cannot be undone later, when dnf has done other things since."""
    return "" if host.source or any(host.has(f"^{re.escape(name)}$") for name in names.split()) else f"sudo dnf remove {names}"


def prepare(host: Distribution) -> str:
    """The repositories and DKMS's build packages; nothing if NVIDIA's driver is already installed from there."""
    if host.source == "nvidia":
        return ""
    return f"{repository(host)}{epel(host)}sudo dnf install dkms {headers(host)} && "


def repository(host: Distribution) -> str:
    folder = {"amzn": "amzn2023", "fedora": f"fedora{host.major}"}.get(host.distribution, f"rhel{host.major}")
    machine = {"aarch64": "sbsa"}.get(host.architecture, "x86_64")
    address = f"{REPOSITORY}/{folder}/{machine}/cuda-{folder}.repo"
    if host.distribution == "fedora":
        return f"sudo dnf install dnf5-plugins && sudo dnf config-manager addrepo --overwrite --from-repofile={address} && "
    return f"sudo dnf install 'dnf-command(config-manager)' && sudo dnf config-manager --add-repo {address} && "


def epel(host: Distribution) -> str:
    """The repository with DKMS; Amazon Linux and Fedora have it in theirs."""
    if host.distribution in ("amzn", "fedora") or host.has("^dkms$"):
        return ""
    if host.distribution == "rhel":
        return f"sudo dnf install {EPEL.format(host.major)} && "
    if host.distribution == "ol":
        return f"sudo dnf install oracle-epel-release-el{host.major} && "
    builders = "powertools" if host.major == 8 else "crb"
    return f"sudo dnf config-manager --set-enabled {builders} && sudo dnf install epel-release && "


def headers(host: Distribution) -> str:
    """The headers of the running kernel; Oracle's UEK kernel has a separate package."""
    if "uek" in host.kernel:
        return "kernel-uek-devel-$(uname -r)"
    if host.distribution == "amzn":
        return "kernel-devel-$(uname -r) kernel-modules-extra-$(uname -r)"
    return "kernel-devel-$(uname -r) kernel-headers"


def select(host: Distribution, branch: int) -> str:
    """Restricts dnf to one branch."""
    stream = f"nvidia-driver:{branch}-{'open' if host.wants_open(branch) else 'dkms'}"
    if host.major not in MODULAR:
        plugin = (
            "" if host.distribution == "fedora" else "sudo dnf install 'dnf-command(versionlock)' && "
        )  # DNF 5 has it built in
        return f"{plugin}sudo dnf versionlock add '*nvidia*{branch}*' && "
    if host.source == "nvidia":
        return f"sudo dnf module switch-to {stream} --allowerasing && "
    return f"sudo dnf module reset nvidia-driver && sudo dnf module enable {stream} && "


def is_precompiled(host: Distribution) -> bool:
    """Whether the modules are prebuilt for single kernels: the branch is in the package's name, and nothing is compiled."""
    return host.has(r"^kmod-nvidia-(open-)?\d") and not host.has(r"^(kmod-nvidia-.*dkms|dkms)$")


def module(host: Distribution) -> Lines:
    if is_precompiled(host):
        return Lines("sudo dnf upgrade 'kmod-nvidia*' 'nvidia*'", loads=True)
    return Lines(f"sudo dnf install dkms {headers(host)} && sudo dkms autoinstall", loads=True)


def reinstall(host: Distribution) -> Lines:
    return Lines("sudo dnf reinstall '*nvidia*'")


def libraries(host: Distribution) -> Lines:
    if not host.driver:
        return Lines("")
    names = ("nvidia-driver-cuda", "nvidia-driver-cuda-libs", "libnvidia-ml")
    return Lines("sudo dnf install " + " ".join(f"{name}-{host.driver}" for name in names))


def fabric_manager(host: Distribution) -> Lines:
    """Fabric Manager in exactly the driver's release, even if older; libnvidia-nscq lets tools see the switches."""
    if not host.driver:
        return Lines("")
    is_numbered = (host.branch or 0) < FABRIC_UNNUMBERED_FROM
    library = f"libnvidia-nscq-{host.branch}" if is_numbered else "libnvidia-nscq"
    manager = "nvidia-fabric-manager" if is_numbered else "nvidia-fabricmanager"
    names = f"{manager}-{host.driver} {library}-{host.driver}"
    return Lines(f"sudo dnf install --allowerasing {names} || sudo dnf downgrade {names}")


def toolkit(host: Distribution, release: str) -> Lines:
    """Never `cuda`, which would change the driver too. Releases with yum get no newer toolkits."""
    if host.has_only_yum:
        return Lines("")
    known = "" if host.source == "nvidia" or host.has("^cuda-toolkit") else repository(host)
    package = f"cuda-toolkit-{release.replace('.', '-')}"
    return Lines(f"{known}sudo dnf install {package}", remove(replace(host, source=""), package))


def sign(host: Distribution) -> Lines:
    return Lines(IMPORT, UNIMPORT, kind="set")
