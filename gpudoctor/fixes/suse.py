"""The driver on SUSE Linux Enterprise and openSUSE: the module signed by SUSE, and NVIDIA's libraries of the same release.

https://documentation.suse.com/trd/kubernetes/html/gs_sles-nvidia-gpu/index.html
https://en.opensuse.org/SDB:NVIDIA_drivers
https://github.com/NVIDIA/gpu-driver-container/issues/585 (names of Fabric Manager)
"""

from __future__ import annotations

from gpudoctor.fixes.distribution import FABRIC_UNNUMBERED_FROM, IMPORT, UNIMPORT, Distribution, Lines

REPOSITORY = "https://developer.download.nvidia.com/compute/cuda/repos"
G07_FROM = 590  # the generation of packages: G06 up to R580
ADD = "sudo zypper addrepo -f {} cuda && sudo zypper --gpg-auto-import-keys refresh && "


def generation(branch: int) -> str:
    return "G07" if branch >= G07_FROM else "G06"


def kernel_flavour(host: Distribution) -> str:
    return host.flavour if host.flavour in ("default", "azure", "64kb", "longterm") else "default"


def install(host: Distribution, branch: int) -> Lines:
    kind = generation(branch)
    if host.wants_open(branch):
        package = f"nvidia-open-driver-{kind}-signed-cuda-kmp-{kernel_flavour(host)}"
    else:
        package = f"nvidia-driver-{kind}-kmp-{kernel_flavour(host)}"
    release = f"$(rpm -q --qf '%{{VERSION}}' {package} | cut -d_ -f1)"
    tools = f"nvidia-compute-utils-{kind}"
    command = f'{repository(host)}sudo zypper install {package} && sudo zypper install "{tools}={release}"'
    return Lines(command, "" if host.source else f"sudo zypper remove --clean-deps {package} {tools}")


def repository(host: Distribution) -> str:
    """NVIDIA's repository, which has the libraries."""
    if host.has("^(nvidia-compute-utils|cuda-toolkit)"):
        return "sudo zypper refresh && "
    later = host.major >= 16 or host.distribution == "opensuse-tumbleweed"  # one repository for all of these
    folder = "suse16" if later else f"{'opensuse' if host.distribution.startswith('opensuse') else 'sles'}{host.major or 15}"
    machine = {"aarch64": "sbsa"}.get(host.architecture, "x86_64")
    return ADD.format(f"{REPOSITORY}/{folder}/{machine}/")


def module(host: Distribution) -> Lines:
    """A prebuilt module that matches comes with updates; DKMS packages are compiled."""
    if host.has("dkms"):
        return Lines(f"sudo zypper install kernel-{kernel_flavour(host)}-devel && sudo dkms autoinstall", loads=True)
    name = next((name for name in host.packages if "kmp" in name), "nvidia-open-driver-G06-signed-kmp-default")
    return Lines(f"sudo zypper refresh && sudo zypper install --force {name}", loads=True)


def reinstall(host: Distribution) -> Lines:
    names = sorted(name for name in host.packages if name.startswith("nvidia-") and "container" not in name)
    return Lines(f"sudo zypper install --force {' '.join(names)}" if names else "")


def libraries(host: Distribution) -> Lines:
    if not host.branch:
        return Lines("")
    tools = f"nvidia-compute-utils-{generation(host.branch)}"
    undo = "" if host.has(f"^{tools}$") else f"sudo zypper remove {tools}"
    return Lines(f"{repository(host)}sudo zypper install --oldpackage '{tools}={host.driver}'", undo)


def fabric_manager(host: Distribution) -> Lines:
    if not host.driver:
        return Lines("")
    is_numbered = (host.branch or 0) < FABRIC_UNNUMBERED_FROM
    library = f"libnvidia-nscq-{host.branch}" if is_numbered else "libnvidia-nscq"
    manager = "nvidia-fabric-manager" if is_numbered else "nvidia-fabricmanager"
    names = f"'{manager}={host.driver}' '{library}={host.driver}'"
    undo = "" if host.has(f"^{manager}$") else f"sudo zypper remove {manager} {library}"
    return Lines(f"sudo zypper install --oldpackage {names}", undo)


def toolkit(host: Distribution, release: str) -> Lines:
    """Never `cuda`, which would change the driver too."""
    package = f"cuda-toolkit-{release.replace('.', '-')}"
    return Lines(f"{repository(host)}sudo zypper install {package}", f"sudo zypper remove --clean-deps {package}")


def sign(host: Distribution) -> Lines:
    return Lines(IMPORT, UNIMPORT, kind="set")
