"""What a package source needs to know about a machine before it can name its packages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.filling import word
from gpudoctor.knowledge import architecture, gpus_by_device_id
from gpudoctor.model import Kind

OSTREE, TRANSACTIONAL, FIXED = "ostree", "transactional", "fixed"
TRANSACTIONAL_ONES = ("opensuse-microos", "opensuse-aeon", "opensuse-kalpa", "opensuse-leap-micro", "sle-micro", "sl-micro")
FIXED_ONES = ("flatcar", "talos", "cos", "bottlerocket", "steamos")
BEFORE_TURING = ("Fermi", "Kepler", "Maxwell", "Pascal", "Volta")
EITHER = ("Turing", "Ampere", "Ada", "Hopper")
FABRIC_UNNUMBERED_FROM = 580  # since this branch, the names of NVIDIA's Fabric Manager and NSCQ do not contain the branch
ONLY_OPEN_FROM = 590  # since this branch, every supported GPU works with the open module
OPEN_SINCE, OPEN_BY_DEFAULT_FROM = 515, 560  # in between, the open module is for data centre boards and experimental on others
CLOUDS = {"amazon": "aws", "google": "gcp"}
UBUNTU_CODENAMES = {"focal": "20.04", "jammy": "22.04", "noble": "24.04", "questing": "25.10", "resolute": "26.04"}
UBUNTU_DRIVER = re.compile(
    r"""
    (nvidia-(driver|headless(-no-dkms)?|dkms|utils)|libnvidia-compute|linux-modules-nvidia)
    -\d  # the branch
    """,
    re.VERBOSE,
)


IMPORT, UNIMPORT = "sudo mokutil --import /var/lib/dkms/mok.pub", "sudo mokutil --delete /var/lib/dkms/mok.pub"


class Lines(NamedTuple):
    """A command and its undo, with other fields of the fix made from it.

    loads: load the module afterwards. reboot: it takes effect at the next boot.
    """

    command: str
    undo: str = ""
    kind: Kind = "install"
    loads: bool = False
    reboot: bool = False
    needs: tuple[str, ...] = ("root", "network")


@dataclass(frozen=True)
class Distribution:
    """place: host, wsl2 or container. source: of the installed driver, "" if none is installed. cloud: aws, gcp, azure.

    image: how a system is changed that is an image, "" for others.

    All texts are plain words, since they become parts of commands; anything else counts as unknown.
    """

    distribution: str = "linux"
    version: str = ""
    family: str = "other"
    architecture: str = "x86_64"
    kernel: str = ""
    place: str = "host"
    packages: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    driver: str = ""
    generations: frozenset[str | None] = frozenset()
    module_is_open: bool | None = None
    is_server: bool = False
    secure_boot: bool = False
    cloud: str = ""
    image: str = ""

    def __post_init__(self) -> None:
        for field_ in fields(self):
            value = getattr(self, field_.name)
            if isinstance(value, str) and value and word(value) is None:
                object.__setattr__(self, field_.name, field_.default)
        if not re.match(r"\d+(\.|$)", self.driver):
            object.__setattr__(self, "driver", "")
        packages = {name: version for name, version in self.packages.items() if word(name) and word(version or "0")}
        object.__setattr__(self, "packages", packages)

    @property
    def branch(self) -> int | None:
        return int(self.driver.split(".")[0]) if self.driver else None

    @property
    def major(self) -> int:
        """The major version of the distribution: 9 of 9.7; 0 of a rolling release."""
        return int(re.match(r"\d*", self.version)[0] or 0)  # type: ignore[index]

    @property
    def is_ubuntu(self) -> bool:
        return self.distribution == "ubuntu"

    @property
    def has_only_yum(self) -> bool:
        """RHEL, its rebuilds, 7, and Amazon Linux 2 have no dnf."""
        if re.search(r"\.(?:el7|amzn2)\b", self.kernel) and self.place != "container":
            return True
        return self.family == "rhel" and self.major == (2 if self.distribution == "amzn" else 7)

    @property
    def flavour(self) -> str:
        """The suffix of the kernel's name: generic, aws, lts ..."""
        return self.kernel.rsplit("-", 1)[-1] if "-" in self.kernel else ""

    def has(self, pattern: str) -> bool:
        return any(re.search(pattern, name) for name in self.packages)

    def wants_open(self, branch: int) -> bool:
        """Whether these GPUs need the open kernel module; if both work, the installed flavour is kept."""
        if branch < OPEN_SINCE or not self.generations.isdisjoint(BEFORE_TURING):
            return False
        if branch >= ONLY_OPEN_FROM or not self.generations <= {*EITHER, None}:
            return True
        return self.module_is_open is True or (self.module_is_open is None and branch >= OPEN_BY_DEFAULT_FROM)


def distribution(facts: Facts) -> Distribution:
    """The distribution of this machine. What could not be read counts as not installed."""
    nothing: dict[str, str] = {}
    packages = known(lambda: {package.name: package.version for package in facts.driver.packages}, nothing)
    runfile = known(lambda: facts.driver.runfile_install, False)
    kernel = known(lambda: facts.system.kernel, "")
    distribution, version = named(facts)
    gpus = known(lambda: facts.pci.gpus, ())
    devices = {gpu.stated_device_id for gpu in gpus if gpu.stated_device_id is not None}
    return Distribution(
        distribution=distribution,
        version=version,
        family=known(lambda: facts.system.family, "" if facts.texts.alone else "other"),
        architecture=known(lambda: facts.system.architecture, "x86_64"),
        kernel=kernel,
        place=place(facts),
        packages=packages,
        source=source(packages, distribution) or ("runfile" if runfile else ""),
        driver=known(lambda: facts.driver.module_version or facts.driver.library_version or "", ""),
        generations=frozenset(gpu.generation for gpu in gpus) | generations(facts),
        module_is_open=known(lambda: facts.driver.module_is_open, None),
        is_server=is_server(packages, devices),
        secure_boot=bool(known(lambda: facts.system.secure_boot, None)),
        image=image(facts) if place(facts) == "host" else "",
        cloud="azure" if kernel.endswith("-azure") else CLOUDS.get(known(lambda: facts.system.hypervisor, None) or "", ""),
    )


def image(facts: Facts) -> str:
    """How the system is changed if it is an image; "" if packages can be installed."""
    name = known(lambda: facts.system.distribution, "")
    if known(lambda: facts.system.is_ostree, False):
        return OSTREE
    return TRANSACTIONAL if name in TRANSACTIONAL_ONES else FIXED if name in FIXED_ONES else ""


def generations(facts: Facts) -> frozenset[str | None]:
    """The generations of the GPUs that the driver shows."""
    nothing: set[tuple[int, int]] = set()
    shown = known(lambda: {gpu.compute_capability for gpu in facts.nvml.reachable.values()}, nothing)
    return frozenset(row.name for capability in shown if (row := architecture(capability)))


def named(facts: Facts) -> tuple[str, str]:
    """The distribution and its version; for a derivative of Ubuntu, those of the Ubuntu it is based on."""
    no_name: tuple[str, ...] = ()
    distribution, version = (
        known(lambda: facts.system.distribution, "linux"),
        known(lambda: facts.system.distribution_version, ""),
    )
    like = known(lambda: facts.system.distribution_like, no_name)
    if distribution != "ubuntu" and "ubuntu" in like:
        return "ubuntu", UBUNTU_CODENAMES.get(known(lambda: facts.system.ubuntu_codename, ""), "")
    if like[:1] == ("fedora",) and distribution != "amzn" and re.fullmatch(r"[34]\d", version):  # Bazzite, Nobara: its releases
        return "fedora", version
    return distribution, version


def place(facts: Facts) -> str:
    if facts.shown.is_windows:
        return "windows"
    if known(lambda: facts.system.wsl, 0):
        return "wsl2"
    return "container" if known(lambda: facts.system.is_container, False) else "host"


SOURCES = (
    ("rpmfusion", r"^(akmod-nvidia|xorg-x11-drv-nvidia)", ""),
    ("elrepo", r"^(nvidia-x11-drv|kmod-nvidia$)", ""),
    ("nvidia", r"^(nvidia-open(-\d+)?|cuda-drivers(-\d+)?|kmod-nvidia-.*|nvidia-kmod-common|nvidia-driver-pinning.*)$", ""),
    ("ppa", r"^(nvidia-driver|libnvidia-compute)", r"~gpu"),
    ("distribution", r"^(nvidia-driver|nvidia-headless|libnvidia-compute|nvidia-dkms)-\d", r"ubuntu0\.\d"),
    ("nvidia", r"^(nvidia-driver|libnvidia-compute|nvidia-dkms)", r"^\d+\.\d+(\.\d+)?-\d+(ubuntu\d+)?$"),
    (
        "distribution",
        r"^(nvidia-driver|nvidia-kernel-dkms|libnvidia-compute|nvidia-open|nvidia-compute|nvidia-utils|nvidia-gl)",
        "",
    ),
)


def source(packages: Mapping[str, str], distribution: str) -> str:
    """distribution, nvidia, ppa, rpmfusion or elrepo, from the names and versions of the driver's packages."""
    if distribution == "arch" or distribution.startswith(("opensuse", "sle")):
        return "distribution" if any(re.match(r"nvidia-(?!container)", name) for name in packages) else ""
    packages = {package: version for package, version in packages.items() if "nvidia" in package or "cuda" in package}
    for name, named_so, versioned_so in SOURCES:
        found = (version for package, version in packages.items() if re.search(named_so, package))
        if any(re.search(versioned_so, version) for version in found):
            return name
    return ""


def is_server(packages: Mapping[str, str], devices: set[int]) -> bool:
    """Whether to name Ubuntu's packages for servers: decided by the installed packages, or else by the boards."""
    there = [name for name in packages if UBUNTU_DRIVER.match(name)]
    if there:
        return any("-server" in name for name in there)
    return bool(devices) and all(map(is_for_servers, devices))


def is_for_servers(device_id: int) -> bool:
    """Whether it is a data centre board, without display outputs."""
    return any(gpu.segment == "data centre" for gpu in gpus_by_device_id(device_id))
