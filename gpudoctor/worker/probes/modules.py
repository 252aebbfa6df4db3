"""The driver's kernel modules, DKMS, module options, the system's packages and nvidia-smi."""

from __future__ import annotations

import os
import re
import shutil
from typing import Any, Dict, Iterator, List, Tuple

from gpudoctor.worker.probes import package_log, package_sources
from gpudoctor.worker.probes.machine import Answer, Machine

MODULES = "/lib/modules"
# Where distributions, DKMS, akmods and the .run installer install the driver.
MODULE_FOLDERS = ("updates", "extra", "extramodules", "weak-updates", "misc", "video", "kernel/drivers/video")
MODULE_FOLDER_PATTERN = "kernel/nvidia*"
MODULE_FILE = re.compile(r"nvidia(?!fb)[\w.-]*\.ko(\.\w+)?")  # nvidiafb is the kernel's own frame buffer driver
MAXIMUM_FOLDERS = 400

OPTION_FOLDERS = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
    "/etc/modules-load.d",
    "/usr/lib/modules-load.d",
)
OPTION_OF_INTEREST = re.compile(r"nvidia|nouveau|vfio|NVreg", re.IGNORECASE)
RULE_FOLDERS = ("/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d")
RULE_OF_INTEREST = re.compile(r"0x10de.*ATTR\{remove\}")
ASUS_SWITCH = "/sys/devices/platform/asus-nb-wmi/dgpu_disable"

PACKAGE_OF_INTEREST = re.compile(
    r"""
    nvidia | cuda | cudnn | nccl | cublas | cusparse | tensorrt | libnvinfer | nsight | nvml | nvlink | nvlsm
    | datacenter-gpu-manager | nouveau | ^libnv
    | ^docker | ^containerd | ^podman | ^moby
    | ^dkms | ^akmod | ^kmod- | ^mokutil | ^(?: gcc | g\+\+ | clang | cmake | ninja-build )
    | ^(?: linux-headers | kernel-devel | kernel-headers )
    | ^(?: libibverbs | rdma-core | mlnx | doca | ibverbs )
    | ubuntu-drivers
    """,
    re.VERBOSE,
)
DPKG = "/var/lib/dpkg/status"
PACMAN = "/var/lib/pacman/local"
RPM = ("rpm", "-qa", "--queryformat", r"%{NAME} %{VERSION}-%{RELEASE}\n")
RPM_SECONDS = 3.0

RUNFILE_TRACES = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer", "/var/lib/nvidia")
MAKE_LOGS = "/var/lib/dkms/nvidia*/*/build/make.log"
MAKE_LOG_BYTES = 64 << 10
ADMINISTRATOR_FOLDERS = ("/usr/sbin", "/sbin")  # not on every user's PATH
WSL_FOLDERS = ("/usr/lib/wsl/lib",)
NVIDIA_SMI_SECONDS = 6.0


def ask(machine: Machine) -> Iterator[Answer]:
    yield machine.ask("kernel-modules", lambda: _kernel_modules(machine))
    yield machine.ask("modprobe", lambda: _matching(machine, OPTION_FOLDERS, "/*.conf", OPTION_OF_INTEREST))
    yield machine.ask("udev-rules", lambda: _matching(machine, RULE_FOLDERS, "/*.rules", RULE_OF_INTEREST))
    yield machine.file(ASUS_SWITCH)
    for path in RUNFILE_TRACES:
        yield machine.glob(path)
    yield from _make_logs(machine)
    yield machine.ask("os-packages", lambda: _packages(machine))
    yield machine.ask("driver-changes", lambda: package_log.changes(machine))
    yield machine.ask("package-sources", lambda: package_sources.sources(machine))
    yield _command(machine, ADMINISTRATOR_FOLDERS, ("modinfo", "nvidia"), 2.0)
    yield _command(machine, ADMINISTRATOR_FOLDERS, ("dkms", "status"), 3.0)
    yield _command(machine, WSL_FOLDERS, ("nvidia-smi", "-L"), NVIDIA_SMI_SECONDS)


def _command(machine: Machine, folders: Tuple[str, ...], argv: Tuple[str, ...], timeout: float) -> Answer:
    """The command from PATH, else from `folders`; the question is the same."""
    return machine.ask("command:" + " ".join(argv), lambda: machine.run((_program(argv[0], folders), *argv[1:]), timeout))


def _program(name: str, folders: Tuple[str, ...]) -> str:
    """Searched here because exec reports "permission denied" instead of "missing" if a folder on PATH is unreadable."""
    path = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *folders)))
    if path is None:
        raise FileNotFoundError(name + " is not there")
    return path


def _kernel_modules(machine: Machine) -> Dict[str, Any]:
    """Kernel release -> whether its headers are there, and the driver's module files."""
    return {
        os.path.basename(folder): {
            "headers": _resolves(machine, folder + "/build"),
            "nvidia": _modules(machine, folder),
        }
        for folder in machine.matching(MODULES + "/*")
        if os.path.isdir(machine.path(folder))
    }


def _resolves(machine: Machine, path: str) -> bool:
    """Whether a link exists on the machine; an absolute link under another root has to be resolved there."""
    real = machine.path(path)
    if os.path.islink(real) and os.path.isabs(os.readlink(real)):
        real = machine.path(os.readlink(real))
    return os.path.exists(real)


def _modules(machine: Machine, folder: str) -> List[str]:
    folders = [os.path.join(folder, name) for name in MODULE_FOLDERS]
    folders += machine.matching(os.path.join(folder, MODULE_FOLDER_PATTERN))
    return sorted({path for top in folders for path in _walk(machine, top)})


def _walk(machine: Machine, top: str) -> Iterator[str]:
    start = machine.path(top)
    for count, (folder, _, names) in enumerate(os.walk(start)):
        if count >= MAXIMUM_FOLDERS:
            return
        below = os.path.normpath(os.path.join(top, os.path.relpath(folder, start)))
        yield from (os.path.join(below, name) for name in names if MODULE_FILE.fullmatch(name))


def _matching(machine: Machine, folders: Tuple[str, ...], pattern: str, wanted: "re.Pattern[str]") -> Dict[str, str]:
    """Path -> text of the files that concern the driver; a folder with two names counts once."""
    texts, seen = {}, set()
    for folder in folders:
        real = os.path.realpath(machine.path(folder))
        if real in seen:
            continue
        seen.add(real)
        for path in machine.matching(folder + pattern):
            text = machine.read(path) if os.path.isfile(machine.path(path)) else ""
            if wanted.search(text):
                texts[path] = text
    return texts


def _make_logs(machine: Machine) -> Iterator[Answer]:
    question, reply = machine.glob(MAKE_LOGS)
    yield question, reply
    for path in reply.value or ():
        yield machine.file(path, MAKE_LOG_BYTES)


def _packages(machine: Machine) -> List[Dict[str, str]]:
    """The packages of interest, from the database of the installed package manager."""
    if os.path.exists(machine.path(DPKG)):
        return _dpkg(machine)
    if os.path.isdir(machine.path(PACMAN)):
        return _pacman(machine)
    return _rpm(machine)


def _dpkg(machine: Machine) -> List[Dict[str, str]]:
    """Parses the file, because dpkg-query takes several times as long. "deinstall ok config-files" is not installed."""
    packages = []
    with open(machine.path(DPKG), encoding="utf-8", errors="replace") as file:
        for block in file.read().split("\n\n"):
            name = block[len("Package: ") :].partition("\n")[0]
            if PACKAGE_OF_INTEREST.search(name):
                fields = dict(re.findall(r"^(Status|Version): (.*)$", block, re.MULTILINE))
                packages.append(("dpkg", name, fields.get("Version", ""), fields.get("Status", "").split(" ")[-1]))
    absent = ("not-installed", "config-files")
    return [package(*found) for found in packages if found[3] not in absent]


def _pacman(machine: Machine) -> List[Dict[str, str]]:
    """Each installed package is a folder name-version-release."""
    folders = [name.rsplit("-", 2) for name in sorted(os.listdir(machine.path(PACMAN)))]
    return [package("pacman", f[0], f[1] + "-" + f[2]) for f in folders if len(f) == 3 and _is_of_interest(f[0])]


def _rpm(machine: Machine) -> List[Dict[str, str]]:
    done = machine.run(RPM, RPM_SECONDS)
    if done["code"]:
        raise RuntimeError(done["err"].strip()[-200:] or "rpm failed")
    lines = [line.partition(" ") for line in sorted(done["out"].splitlines())]
    return [package("rpm", name, version) for name, _, version in lines if _is_of_interest(name)]


def _is_of_interest(name: str) -> bool:
    return PACKAGE_OF_INTEREST.search(name) is not None


def package(manager: str, name: str, version: str, state: str = "installed") -> Dict[str, str]:
    return {"manager": manager, "name": name, "version": version, "state": state}
