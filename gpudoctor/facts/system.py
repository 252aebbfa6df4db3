"""The operating system: distribution, kernel, WSL or container, and kernel settings that matter to a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpudoctor.facts import place
from gpudoctor.facts.container import Container
from gpudoctor.facts.families import named_in, shown_by
from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.known import known
from gpudoctor.facts.replies import Replies
from gpudoctor.facts.shown import Shown
from gpudoctor.facts.texts import Texts
from gpudoctor.filling import word
from gpudoctor.model import Skip, Unavailable

MOST_NUMBERS = 1 << 14  # processors of one machine
FAMILIES = {
    "debian": {"debian", "ubuntu"},
    "rhel": {"rhel", "fedora", "centos", "rocky", "almalinux", "amzn", "ol"},
    "suse": {"suse", "opensuse", "sles", "opensuse-leap", "opensuse-tumbleweed"},
    "arch": {"arch", "archlinux"},
    "nixos": {"nixos"},
}
# sys_vendor and product_name of virtual machines; systemd's src/basic/virt.c has the same table.
HYPERVISORS = (
    ("Amazon EC2", "amazon"),
    ("Google Compute Engine", "google"),
    ("Microsoft Corporation Virtual Machine", "hyper-v"),
    ("VMware", "vmware"),
    ("innotek", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Xen", "xen"),
    ("Parallels", "parallels"),
    ("QEMU", "kvm"),
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("Alibaba Cloud", "kvm"),
    ("Bochs", "kvm"),
    ("Nutanix", "kvm"),
)


@dataclass(frozen=True)
class InfinibandPort:
    """One port of an InfiniBand or RoCE adapter, in the kernel's words: ACTIVE, LinkUp, InfiniBand or Ethernet."""

    device: str
    port: int
    state: str
    physical_state: str
    link_layer: str


class System(Guarded):
    """The system that the driver runs on."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def _os_release(self) -> dict[str, str]:
        return os_release(self._replies.file("/etc/os-release") or "")

    @property
    def distribution(self) -> str:
        return word(self._os_release.get("ID", "")) or "linux"

    @property
    def distribution_like(self) -> tuple[str, ...]:
        return tuple(self._os_release.get("ID_LIKE", "").split())

    @property
    def distribution_name(self) -> str:
        return self._os_release.get("PRETTY_NAME", self.distribution)

    @property
    def distribution_version(self) -> str:
        """VERSION_ID, such as 24.04; "" for a rolling release."""
        return word(self._os_release.get("VERSION_ID", "")) or ""

    @property
    def is_ostree(self) -> bool:
        """Whether the system is an image that rpm-ostree changes: Silverblue, CoreOS, Bazzite."""
        is_layered = "OSTREE_VERSION" in self._os_release or "/ostree/" in known(lambda: self.command_line, "")
        return is_layered and self.family == "rhel"

    @property
    def ubuntu_codename(self) -> str:
        """The codename of the Ubuntu release that a distribution is based on: noble for Linux Mint 22."""
        return self._os_release.get("UBUNTU_CODENAME", "")

    @property
    def family(self) -> str:
        """debian, rhel, suse, arch or other."""
        return family_of((self.distribution, *self.distribution_like))

    @cached_property
    def kernel(self) -> str:
        return self._uname("release") or kernel_of(self._replies.value("file:/proc/version"))

    @cached_property
    def architecture(self) -> str:
        architecture = self._uname("machine")
        if architecture is None or word(architecture) is None:
            raise Unavailable("uname: no answer" if architecture is None else "uname: the machine is not a name")
        return architecture

    @cached_property
    def cpu_flags(self) -> frozenset[str]:
        """The instruction sets of an x86 processor; empty on others."""
        flags = re.search(r"^flags\s*:(.*)$", self._replies.value("processor"), re.MULTILINE)
        return frozenset(flags[1].split()) if flags else frozenset()

    def _uname(self, field: str) -> str | None:
        try:
            return str(self._replies.value("uname")[field])
        except Unavailable:
            return None

    @cached_property
    def uptime_seconds(self) -> float:
        return float(self._replies.value("file:/proc/uptime").split()[0])

    @cached_property
    def command_line(self) -> str:
        """The kernel's parameters."""
        return str(self._replies.value("file:/proc/cmdline")).strip()

    @cached_property
    def memory_mib(self) -> dict[str, int]:
        """/proc/meminfo: MemTotal, MemAvailable, SwapTotal, CmaTotal and so on."""
        return memory_mib(self._replies.value("file:/proc/meminfo"))

    @cached_property
    def huge_pages(self) -> dict[str, int]:
        """Counts of /proc/meminfo, of the default size: Total, Free, Rsvd (free, but promised to a program), Surp."""
        text = self._replies.value("file:/proc/meminfo")
        return {name: int(count) for name, count in re.findall(r"^HugePages_(\w+): +(\d+)$", text, re.MULTILINE)}

    @cached_property
    def overcommit_mode(self) -> int | None:
        """vm.overcommit_memory: 0, 1 or 2 (strict); None if it is unknown, as in snapshots of older versions."""
        try:
            text = (self._replies.file("/proc/sys/vm/overcommit_memory") or "").strip()
        except Unavailable:
            return None
        return int(text) if text.isdecimal() else None

    @cached_property
    def wsl(self) -> int:
        """0 outside WSL, else 1 or 2; a container in WSL2 counts as WSL2."""
        version = self._replies.file("/proc/version") or ""
        return wsl_of(self._uname("release") or (kernel_of(version) if version else ""), version)

    @cached_property
    def is_container(self) -> bool:
        """False for a text that does not mention it."""
        asked = self._replies.starting_with("container-") or self._replies.starting_with("prompt-of-container")
        return bool(asked) and Container(self._replies).engine is not None

    @cached_property
    def hypervisor(self) -> str | None:
        """kvm, amazon, google, hyper-v, vmware ...; "unknown" if only the CPU reveals it; None on bare metal."""
        if self.wsl:
            return "hyper-v"
        words = [self._replies.file("/sys/class/dmi/id/" + name) or "" for name in ("sys_vendor", "product_name")]
        return hypervisor_of(" ".join(map(str.strip, words)), self._replies.optional("processor") or "")

    @property
    def core_pattern(self) -> str | None:
        """Where cores of crashed programs go: a file, or a program after "|"; None if unknown. A container shows its host's."""
        text = self._replies.file("/proc/sys/kernel/core_pattern")
        return None if text is None else text.strip()

    @cached_property
    def selinux_enforcing(self) -> bool:
        text = self._replies.file("/sys/fs/selinux/enforce")
        if text is None and "selinuxfs" in (self._replies.file("/proc/filesystems") or ""):
            self._host_only("whether SELinux enforces")
        return (text or "0").strip() == "1"

    @cached_property
    def perf_event_paranoid(self) -> int | None:
        text = self._replies.file("/proc/sys/kernel/perf_event_paranoid")
        return int(text) if text is not None else None

    @cached_property
    def secure_boot(self) -> bool | None:
        """None if the machine did not boot through EFI."""
        value = self._replies.optional("secure-boot")
        if value is None:
            self._host_only("Secure Boot")
        return None if value is None else value == 1

    def _host_only(self, what: str) -> None:
        """Skips in a container, which does not show it: a missing file does not mean that it is off."""
        if self.is_container:
            raise Unavailable(f"{what} is not visible in a container", Skip.UNSUPPORTED)

    @cached_property
    def numa_nodes(self) -> tuple[int, ...]:
        return number_list(self._replies.file("/sys/devices/system/node/online") or "0")

    @cached_property
    def infiniband_ports(self) -> tuple[InfinibandPort, ...]:
        paths = self._replies.value("glob:/sys/class/infiniband/*/ports/*/state")
        return tuple(self._infiniband_port(path.rsplit("/", 1)[0]) for path in paths)

    def _infiniband_port(self, folder: str) -> InfinibandPort:
        # The file reads "4: ACTIVE".
        names = ("state", "phys_state", "link_layer")
        words = [(self._replies.file(f"{folder}/{name}") or "").split(":")[-1].strip() for name in names]
        *_, device, _, port = folder.split("/")
        return InfinibandPort(device, int(port), *words)

    @cached_property
    def platform(self) -> tuple[str, ...]:
        """The tags that can limit a Fix: windows; or family (every one if a text shows none), wsl2, container or host; conda."""
        conda = ("conda",) if known(lambda: self._is_conda) else ()
        if Shown(self._replies).is_windows:
            return ("windows", *conda)
        places = [
            name for name, here in (("wsl2", lambda: self.wsl == 2), ("container", lambda: self.is_container)) if known(here)
        ] or ["host", *place.tags(self._replies, known(lambda: self.hypervisor))]
        asked = self._replies.starting_with("file:/etc/os-release")
        families = (known(lambda: self.family) or "other",) if asked else self._shown_families() or tuple(FAMILIES)
        families += ("other",) if families == ("nixos",) else ()  # fixes without a command for NixOS use that of "other"
        return (*families, *places, *conda)

    def _shown_families(self) -> tuple[str, ...]:
        kernel = "" if known(lambda: self.is_container, True) else known(lambda: self.kernel, "")
        packages: list[dict[str, str]] = known(lambda: self._replies.value("os-packages"), [])
        if found := shown_by(kernel, {package["manager"] for package in packages}):
            return found
        texts = Texts(self._replies)
        return named_in(texts.words) if texts.alone and not known(lambda: self.is_container, False) else ()

    @property
    def _is_conda(self) -> bool:
        """By the interpreter; in a text without one, by the list of packages."""
        interpreter: dict[str, Any] | None = known(lambda: self._replies.value("interpreter"))
        if interpreter is None:
            return bool(known(lambda: self._replies.value("conda"), []))
        return bool(interpreter.get("conda_prefix"))


def os_release(text: str) -> dict[str, str]:
    """NAME="value" lines: https://www.freedesktop.org/software/systemd/man/latest/os-release.html"""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, value in pairs}


def family_of(names: Iterable[str]) -> str:
    """The first family that one of the names (ID, then ID_LIKE) belongs to."""
    for name in names:
        for family, members in FAMILIES.items():
            if name in members:
                return family
    return "other"


def kernel_of(proc_version: str) -> str:
    match = re.match(r"Linux version (\S+)", proc_version)
    if not match:
        raise Unavailable("/proc/version names no kernel")
    return match[1]


def wsl_of(release: str, proc_version: str) -> int:
    """The WSL version. WSL1 reports 4.4.0-19041-Microsoft, WSL2 5.15.153.1-microsoft-standard-WSL2 or a custom kernel's name."""
    if "microsoft" not in (release + proc_version).lower():
        return 0
    return 1 if re.fullmatch(r"4\.4\.\d+-\d+-Microsoft", release) else 2


def hypervisor_of(product: str, processor: str) -> str | None:
    """product: vendor and product name; processor: the first block of /proc/cpuinfo, whose flags exist only on x86."""
    flags = re.search(r"^flags\s*:(.*)$", processor, re.MULTILINE)
    if flags and "hypervisor" not in flags[1].split():
        return None
    named = next((name for words, name in HYPERVISORS if words in product and ".metal" not in product), None)
    return named or ("unknown" if flags else None)


def memory_mib(text: str) -> dict[str, int]:
    sizes = re.findall(r"^([\w()]+):\s+(\d+) kB$", text, re.MULTILINE)
    return {name: int(kib) // 1024 for name, kib in sizes}


def number_list(text: str) -> tuple[int, ...]:
    """The kernel's list format: "0-1,4" is 0, 1, 4. At most MOST_NUMBERS of each range."""
    ranges = (part.split("-") for part in text.strip().split(",") if part)
    bounds = ((int(ends[0]), int(ends[-1]) + 1) for ends in ranges)
    return tuple(number for first, end in bounds for number in range(first, min(end, first + MOST_NUMBERS)))
