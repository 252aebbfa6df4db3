"""The NVIDIA driver: the loaded module, the installed modules, the libraries, DKMS, packages and nvidia-smi."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from packaging.version import Version

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.known import known
from gpudoctor.facts.replies import Replies
from gpudoctor.facts.system import System
from gpudoctor.model import Unavailable

_RUNFILE_TRACES = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer", "/var/lib/nvidia")
_STANDARD_FOLDERS = ("/usr/lib/", "/usr/lib64/", "/lib/", "/lib64/", "/usr/local/nvidia/", "/nix/store/")
_NOT_THE_DRIVER = re.compile(r"/(compat|stubs|wsl)\b|cuda-compat")
# WSL's libcuda.so.1.1 has no driver version in its name.
_DRIVER_LIBRARY = re.compile(r"lib(?:nvidia-ml|cuda)\.so\.(\d{2,}\.\d+(?:\.\d+)?)")
_LOADED_NAMES = ("libnvidia-ml.so.1", "libcuda.so.1")


@dataclass(frozen=True)
class InstalledModule(Guarded):
    """One module file of the driver in /lib/modules."""

    kernel: str
    path: str

    @property
    def name(self) -> str:
        """nvidia, nvidia-uvm ...; also for Debian's nvidia-current-uvm.ko.xz and nvidia-tesla-470.ko."""
        stem = PurePosixPath(self.path).name.split(".ko")[0].replace("_", "-")
        last = stem.rsplit("-", 1)[-1]
        return "nvidia-" + last if last in ("uvm", "drm", "modeset", "peermem", "fs") else "nvidia"


@dataclass(frozen=True)
class DkmsEntry:
    """One line of `dkms status`: state is added, built or installed; a module that is only added has no kernel."""

    module: str
    version: str
    kernel: str | None
    state: str
    note: str  # "WARNING! Diff between built and installed module!"


@dataclass(frozen=True)
class OsPackage(Guarded):
    """A package of the system's package manager; state is "installed", or how far dpkg got."""

    name: str
    version: str
    manager: str  # dpkg, rpm or pacman
    state: str


@dataclass(frozen=True)
class SmiAnswer(Guarded):
    """The result of `nvidia-smi -L`; code is None if it timed out."""

    code: int | None
    seconds: float
    out: str
    error: str

    @property
    def timed_out(self) -> bool:
        return self.code is None


class Driver(Guarded):
    """Everything about the driver except NVML."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._system = System(replies)

    @cached_property
    def _nvrm(self) -> str:
        return self._replies.file("/proc/driver/nvidia/version") or ""

    @cached_property
    def module_version(self) -> str | None:
        """The version of the loaded kernel module; None if none is loaded. NVML gets its version from the module, too."""
        try:
            text = self._replies.file("/sys/module/nvidia/version") or ""
            return nvrm_version(self._nvrm) or text.strip() or None
        except Unavailable:
            file = (known(lambda: self._replies.file("/sys/module/nvidia/version")) or "").strip()
            version = known(lambda: nvrm_version(self._nvrm)) or self._of_nvml() or file or None
            if version is None and not self._replies.is_missing("file:/sys/module/nvidia/version"):
                raise
            return version

    def _of_nvml(self) -> str | None:
        try:
            version = self._replies.value("nvml").get("system", {}).get("DriverVersion")
        except Unavailable:
            return None
        return version if isinstance(version, str) else None

    @cached_property
    def module_is_open(self) -> bool | None:
        return " Open " in self._nvrm.splitlines()[0] if self._nvrm else None

    @cached_property
    def branch(self) -> int | None:
        """580 for 580.159.04: from the loaded module, else the libraries, else the installed module."""
        sources = (lambda: self.module_version, lambda: self.library_version, lambda: self.modinfo.get("version"))
        version = next(filter(None, map(known, sources)), None) or self.module_version
        return int(version.split(".")[0]) if version else None

    @cached_property
    def loaded_modules(self) -> frozenset[str]:
        """All names in /proc/modules, with underscores: nvidia, nvidia_uvm, nouveau ..."""
        return frozenset(line.split()[0] for line in (self._replies.file("/proc/modules") or "").splitlines())

    @cached_property
    def parameters(self) -> dict[str, str]:
        """The loaded module's parameters without the prefix NVreg_: /proc/driver/nvidia/params."""
        return fields(self._replies.file("/proc/driver/nvidia/params") or "")

    @cached_property
    def gpu_information(self) -> dict[str, dict[str, str]]:
        """PCI address -> what the module reports about that GPU: Model, Video BIOS, Device Minor, GPU Excluded ..."""
        texts = self._replies.files("/proc/driver/nvidia/gpus/*/information")
        return {path.split("/")[-2]: fields(text) for path, text in texts.items()}

    @cached_property
    def uvm_disable_hmm(self) -> bool | None:
        text = self._replies.file("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm")
        return None if text is None else text.strip() in ("Y", "1")

    @cached_property
    def character_devices(self) -> dict[str, int]:
        """Name -> major number in /proc/devices: nvidia, nvidia-uvm, nvidia-caps, nvidia-caps-imex-channels ..."""
        text = self._replies.value("file:/proc/devices").split("Block devices:")[0]
        return {name: int(major) for major, name in re.findall(r"^\s*(\d+) (\S+)$", text, re.MULTILINE)}

    @cached_property
    def _driver_libraries(self) -> list[tuple[str, str]]:
        """(path, version) of the driver's libraries in the standard folders, in the loader's search order."""
        return list(driver_libraries(self._replies.value("libraries")))

    @cached_property
    def library_version(self) -> str | None:
        """The version that libnvidia-ml.so.1, else libcuda.so.1, leads to; None if there is no version (or it is WSL's)."""
        for name in _LOADED_NAMES:
            for path, version in self._driver_libraries:
                if PurePosixPath(path).name == name:
                    return version
        return self._driver_libraries[0][1] if self._driver_libraries else None

    @cached_property
    def library_versions(self) -> tuple[str, ...]:
        """All versions found, newest first; two mean an incomplete upgrade."""
        return tuple(sorted({version for _, version in self._driver_libraries}, key=Version, reverse=True))

    @cached_property
    def installed_modules(self) -> tuple[InstalledModule, ...]:
        """The driver's module files, for any kernel; if /lib/modules could not be read, those that modinfo and DKMS name."""
        try:
            kernels = self._replies.value("kernel-modules").items()
        except Unavailable:
            if not (named := known(lambda: tuple(self._named_modules()), ()) or tuple(self._packaged_modules())):
                raise
            return named
        return tuple(InstalledModule(kernel, path) for kernel, raw in kernels for path in raw["nvidia"])

    def _named_modules(self) -> Iterator[InstalledModule]:
        """Only if both have answered: one alone does not show that there is no other module."""
        path = self.modinfo.get("filename", "")
        if found := re.match(r"(?:/usr)?/lib/modules/([^/]+)/", path):
            yield InstalledModule(found[1], path)
        for entry in self.dkms:
            if entry.module.startswith("nvidia") and entry.kernel and entry.state == "installed":
                yield InstalledModule(entry.kernel, f"/lib/modules/{entry.kernel}/updates/dkms/{entry.module}.ko")

    def _packaged_modules(self) -> Iterator[InstalledModule]:
        """The packages that akmods builds name the kernel."""
        for package in known(lambda: self.packages, ()):
            if package.name == "kmod-nvidia" and (built := re.match(r"(\d\S+?\.(?:x86_64|aarch64))-", package.version)):
                yield InstalledModule(built[1], f"/lib/modules/{built[1]}/extra/nvidia/nvidia.ko.xz")

    @cached_property
    def module_for_running_kernel(self) -> InstalledModule | None:
        modules = (m for m in self.installed_modules if m.kernel == self._system.kernel and m.name == "nvidia")
        return next(modules, None)

    @property
    def kernels_with_modules(self) -> tuple[str, ...]:
        """The kernels that have a folder below /lib/modules."""
        return tuple(self._replies.value("kernel-modules"))

    @cached_property
    def kernel_headers(self) -> bool:
        """Whether a module can be built for the running kernel: /lib/modules/<release>/build exists."""
        running = self._replies.value("kernel-modules").get(self._system.kernel, {})
        return bool(running.get("headers"))

    @cached_property
    def has_dkms(self) -> bool:
        return self._replies.command("dkms status") is not None

    @cached_property
    def dkms(self) -> tuple[DkmsEntry, ...]:
        return dkms_entries((self._replies.command("dkms status") or {}).get("out", ""))

    @cached_property
    def dkms_make_logs(self) -> dict[str, str]:
        """Path -> the end of a build log that was not cleaned up, usually from a failed build."""
        return self._replies.files("/var/lib/dkms/nvidia*/*/build/make.log")

    @cached_property
    def modinfo(self) -> dict[str, str]:
        """version, license, signer, filename, vermagic ... of the module that modprobe would load; empty if there is no such
        module."""
        answer = self._replies.value("command:modinfo nvidia")
        return fields(answer["out"]) if answer["code"] == 0 else {}

    @cached_property
    def modprobe_options(self) -> dict[str, str]:
        """Path -> text of the files in modprobe.d and modules-load.d that mention nvidia, nouveau or vfio."""
        options: dict[str, str] = self._replies.value("modprobe")
        return options

    @cached_property
    def udev_rules(self) -> dict[str, str]:
        """Path -> text of the udev rules that remove an NVIDIA device."""
        rules: dict[str, str] = self._replies.value("udev-rules")
        return rules

    @cached_property
    def is_off_in_asus_firmware(self) -> bool:
        return (self._replies.file("/sys/devices/platform/asus-nb-wmi/dgpu_disable") or "").strip() == "1"

    @cached_property
    def packages(self) -> tuple[OsPackage, ...]:
        """The system packages of interest: driver, CUDA, container, DKMS, headers, compilers."""
        packages: list[dict[str, str]] = self._replies.value("os-packages")
        return tuple(OsPackage(**package) for package in packages)

    @cached_property
    def runfile_install(self) -> bool:
        """Whether NVIDIA's .run installer was used."""
        return any(self._replies.value("glob:" + path) for path in _RUNFILE_TRACES)

    @cached_property
    def nvidia_smi(self) -> SmiAnswer | None:
        """None if nvidia-smi is not installed."""
        reply = self._replies.get("command:nvidia-smi -L")
        if reply.status in ("timeout", "died"):
            return SmiAnswer(None, reply.seconds, "", reply.detail)
        answer = self._replies.command("nvidia-smi -L")
        return SmiAnswer(answer["code"], reply.seconds, answer["out"], answer["err"]) if answer else None


def nvrm_version(text: str) -> str | None:
    """The version in the line "NVRM version: NVIDIA UNIX ..." of the open or the proprietary module."""
    match = re.search(r"^NVRM version:.*?Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)\b", text, re.MULTILINE)
    return match[1] if match else None


def fields(text: str) -> dict[str, str]:
    """Lines of "name: value"; the first of each name counts, and quotes are removed."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip().strip('"'))
    return found


def driver_libraries(libraries: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for library in libraries:
        real = library["real_path"]
        match = _DRIVER_LIBRARY.fullmatch(PurePosixPath(real).name)
        is_there = library.get("size") is not None
        if match and is_there and real.startswith(_STANDARD_FOLDERS) and not _NOT_THE_DRIVER.search(real):
            yield library["path"], match[1]


def dkms_entries(text: str) -> tuple[DkmsEntry, ...]:
    """Both forms: "nvidia, 470.86, 5.13.18, x86_64: installed" (DKMS 2) and "nvidia/470.86, 5.13.18, ..." (DKMS 3)."""
    entries = (re.fullmatch(r"([^:]+): (\w+)\s*(.*)", line.strip()) for line in text.splitlines())
    return tuple(_dkms_entry(*match.groups()) for match in entries if match and match[1].count(",") + match[1].count("/"))


def _dkms_entry(what: str, state: str, note: str) -> DkmsEntry:
    module, version, *rest = re.split(r",\s*|/", what, maxsplit=3)
    return DkmsEntry(module, version, rest[0] if rest else None, state, note.strip(" ()-"))
