"""The driver on Ubuntu: its own packages, those of NVIDIA's repository, and the modules that Canonical builds and signs.

https://documentation.ubuntu.com/server/how-to/graphics/install-nvidia-drivers/
https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/version-locking.html
"""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.fixes import runfile
from gpudoctor.fixes.distribution import FABRIC_UNNUMBERED_FROM, Distribution, Lines
from gpudoctor.fixes.ubuntu_names import is_maintained, kernel_name, package_branch

REPOSITORY = "https://developer.download.nvidia.com/compute/cuda/repos"
UPDATE = "sudo apt update && "
HEADERS = "linux-headers-$(uname -r)"
SIGNED_FROM = 535  # older branches have modules only for old kernels
PINNED_FROM = 590  # since this branch, names in NVIDIA's repository do not contain the branch
CACHE = "sudo apt install --allow-downgrades /var/cache/apt/archives/*nvidia*_{}-*.deb"


def install(host: Distribution, branch: int) -> Lines:
    """Installs a branch. Also switches branch or flavour: the packages of one conflict with those of the other."""
    if host.source == "nvidia":
        return Lines(from_nvidia(host, branch), f"sudo apt install --allow-downgrades {driver(host, host.branch or branch)}")
    if not package_branch(host, branch):
        return runfile.install(host, branch)
    return Lines(UPDATE + of_ubuntu(host, branch), undo(host, branch))


def undo(host: Distribution, branch: int) -> str:
    """Restores the driver; packages that Ubuntu has replaced can only come from apt's cache, if they are still there."""
    if not (host.branch and host.source):
        modules = f"'linux-modules-nvidia-{package_branch(host, branch)}-*'"
        return f"sudo apt autoremove --purge {driver(host, branch)} {modules}"
    before = ("" if uses_dkms(host) else signed(host, host.branch)) or f"sudo apt install {driver(host, host.branch)}"
    return before if is_maintained(host) else CACHE.format(host.driver)


def suffix(host: Distribution, branch: int) -> str:
    """The suffix of every package of the driver: 580-server-open."""
    number = package_branch(host, branch) or branch
    return f"{number}{'-server' if host.is_server else ''}{'-open' if host.wants_open(number) else ''}"


def libraries_of(host: Distribution, branch: int) -> str:
    """The suffix of the packages with libraries and tools: 580-server."""
    return suffix(host, branch).removesuffix("-open")


def driver(host: Distribution, branch: int) -> str:
    if host.source == "nvidia":
        name = "nvidia-open" if host.wants_open(branch) else "cuda-drivers"
        return name if branch >= PINNED_FROM else f"{name}-{branch}"
    if host.has(r"^nvidia-headless-") and not host.has(r"^nvidia-driver-\d"):
        return f"nvidia-headless-no-dkms-{suffix(host, branch)} nvidia-utils-{libraries_of(host, branch)}"
    return f"nvidia-driver-{suffix(host, branch)}"


def of_ubuntu(host: Distribution, branch: int, also: str = "") -> str:
    """Canonical builds and signs the module for its own kernels; for others, DKMS builds it."""
    compiled = f"sudo apt install {newest_kernel(host)} nvidia-dkms-{suffix(host, branch)} {driver(host, branch)}{also}"
    ready = "" if uses_dkms(host) else signed(host, branch, also)
    return f"({ready} || {compiled})" if ready else compiled


def signed(host: Distribution, branch: int, also: str = "") -> str:
    """Includes the package that follows kernel updates; without it, apt also builds the module, which hides the signed one."""
    name, kernel = suffix(host, branch), kernel_name(host)
    if not kernel or (package_branch(host, branch) or 0) < SIGNED_FROM:
        return ""
    return f"sudo apt install linux-image-{kernel} linux-modules-nvidia-{name}-{kernel} {driver(host, branch)}{also}"


def newest_kernel(host: Distribution) -> str:
    """The newest kernel with its headers; the repository drops headers of replaced kernels."""
    kernel = kernel_name(host)
    return f"linux-image-{kernel} linux-headers-{kernel}" if kernel else HEADERS


def uses_dkms(host: Distribution) -> bool:
    return host.source == "ppa" or (host.has(r"^nvidia-dkms-") and not host.has(r"^linux-modules-nvidia-"))


def from_nvidia(host: Distribution, branch: int) -> str:
    packages = f"{newest_kernel(host)} {driver(host, branch)}"
    if branch >= PINNED_FROM:
        return f"{UPDATE}sudo apt install nvidia-driver-pinning-{branch} && sudo apt install {packages}"
    return f"{UPDATE}sudo apt install {packages}"


def repository(host: Distribution) -> str:
    """Adds NVIDIA's repository if it is missing."""
    if host.has("^cuda-keyring$"):
        return UPDATE
    machine = {"aarch64": "sbsa"}.get(host.architecture, "x86_64")
    release = str(host.major or "") if host.distribution == "debian" else host.version.replace(".", "")
    name = "wsl-ubuntu" if host.place == "wsl2" else f"{host.distribution}{release}"
    folder = f"{name}/{machine}"
    package = "cuda-keyring_1.1-1_all.deb"
    return f"curl -fsSLO {REPOSITORY}/{folder}/{package} && sudo apt install ./{package} && {UPDATE}"


def module(host: Distribution) -> Lines:
    """The module of the installed driver for the running kernel; a replaced branch has no modules for newer kernels."""
    if not host.branch or host.source != "distribution" or uses_dkms(host):
        return Lines(f"sudo apt install dkms {HEADERS} && sudo dkms autoinstall", loads=True)
    compiled = f"sudo apt install {HEADERS} nvidia-dkms-{suffix(host, host.branch)} {driver(host, host.branch)}"
    back = "" if is_maintained(host) else undo(host, host.branch)
    return Lines(f"{UPDATE}({for_this_kernel(host)} || {compiled})", back, loads=True)


def module_of_newest_kernel(host: Distribution) -> Lines:
    """The repository keeps headers and modules only for some months."""
    if not kernel_name(host):
        return Lines("")
    if not host.branch or host.source != "distribution" or uses_dkms(host):
        return Lines(f"{UPDATE}sudo apt install dkms {newest_kernel(host)}")
    return Lines(UPDATE + of_ubuntu(host, host.branch), "" if is_maintained(host) else undo(host, host.branch))


def for_this_kernel(host: Distribution) -> str:
    """The prebuilt module of exactly the installed branch."""
    flavour = f"{'-server' if host.is_server else ''}{'-open' if host.wants_open(host.branch or 0) else ''}"
    return f"sudo apt install linux-modules-nvidia-{host.branch}{flavour}-$(uname -r)"


def reinstall(host: Distribution) -> Lines:
    if not host.branch:
        return Lines("")
    if host.source == "nvidia" and host.branch >= PINNED_FROM:
        return Lines(f"""{UPDATE}sudo apt install --reinstall '?installed?name("^(lib)?nvidia-")?not(?name("container"))'""")
    return Lines(f"""{UPDATE}sudo apt install --reinstall '?installed?name("nvidia-.*-{host.branch}")'""")


def libraries(host: Distribution) -> Lines:
    if not host.branch:
        return Lines("")
    if host.source == "nvidia":
        names = ("libnvidia-compute", "nvidia-driver-cuda")
        if host.branch < PINNED_FROM:
            names = (f"libnvidia-compute-{host.branch}", f"nvidia-utils-{host.branch}")
        return Lines(f"{UPDATE}sudo apt install {exactly(host, *names)}")
    if not is_maintained(host):
        return Lines("")
    server = "-server" if host.is_server else ""
    names = (f"libnvidia-compute-{host.branch}{server}", f"nvidia-utils-{host.branch}{server}")
    return Lines(f"{UPDATE}sudo apt install {exactly(host, *names)}")


def exactly(host: Distribution, *packages: str) -> str:
    return " ".join(f"'{package}={host.driver}-*'" for package in packages)


def together(host: Distribution, also: str = "") -> Lines:
    """Ubuntu's repository keeps one release of a branch: if it is newer, the whole driver is upgraded."""
    if host.source != "distribution" or not host.branch or not package_branch(host, host.branch):
        return Lines("")
    return Lines(UPDATE + of_ubuntu(host, host.branch, also), undo(host, host.branch))


def fabric_manager(host: Distribution) -> Lines:
    """Fabric Manager in exactly the driver's release; libnvidia-nscq lets tools see the switches."""
    if not host.branch:
        return Lines("")
    packages = [f"nvidia-fabricmanager-{host.branch}", f"libnvidia-nscq-{host.branch}"]
    if host.source == "distribution" and not (host.is_server and is_maintained(host)):
        return with_fabric_manager(host)
    if host.source == "nvidia" and host.branch >= FABRIC_UNNUMBERED_FROM and packages[0] not in host.packages:
        packages = ["nvidia-fabricmanager", "libnvidia-nscq"]
    command = f"{UPDATE}sudo apt install --allow-downgrades {exactly(host, *packages)}"
    before = " ".join(f"'{name}={host.packages[name]}'" for name in packages if name in host.packages)
    return Lines(command, f"sudo apt install --allow-downgrades {before}" if before else f"sudo apt remove {' '.join(packages)}")


def with_fabric_manager(host: Distribution) -> Lines:
    """Ubuntu's Fabric Manager works only with Ubuntu's server driver of the same release."""
    number = package_branch(host, host.branch or 0)
    command = together(replace(host, is_server=True), f" nvidia-fabricmanager-{number} libnvidia-nscq-{number}").command
    return Lines(command, undo(host, host.branch or 0), reboot=True)


def toolkit(host: Distribution, release: str) -> Lines:
    """Never `cuda`, which would change the driver too."""
    package = f"cuda-toolkit-{release.replace('.', '-')}"
    return Lines(f"{repository(host)}sudo apt install {package}", f"sudo apt autoremove --purge {package}")


def sign(host: Distribution) -> Lines:
    """For Secure Boot: the module signed by Canonical. A module built by DKMS hides it and needs its own key enrolled."""
    if host.source == "distribution" and host.branch and not uses_dkms(host) and signed(host, host.branch):
        return Lines(UPDATE + signed(host, host.branch), undo(host, host.branch))
    return Lines("(sudo update-secureboot-policy --enroll-key || sudo mokutil --import /var/lib/dkms/mok.pub)", kind="set")
