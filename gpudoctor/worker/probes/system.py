"""The operating system, its kernel and the driver's own files: /etc, /proc and /sys."""

from __future__ import annotations

import os
from typing import Dict, Iterator

from gpudoctor.worker.probes.machine import Answer, Machine

FILES = (
    "/etc/os-release",
    "/proc/version",
    "/proc/uptime",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/devices",
    "/proc/filesystems",
    "/proc/2/comm",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/sys/module/nvidia/version",
    "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm",
    "/sys/kernel/security/lockdown",
    "/sys/fs/selinux/enforce",
    "/proc/sys/kernel/perf_event_paranoid",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/kernel/core_pattern",
    "/sys/devices/system/node/online",
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/class/dmi/id/chassis_type",
)
# Reading these takes driver locks, which a hung driver never releases.
DRIVER_FILES = (
    "/sys/class/infiniband/*/ports/*/state",
    "/sys/class/infiniband/*/ports/*/phys_state",
    "/sys/class/infiniband/*/ports/*/link_layer",
    "/sys/class/infiniband/*/device/uevent",
    "/sys/class/infiniband/*/device/numa_node",
    "/sys/class/infiniband/*/fw_ver",
    "/sys/class/infiniband/*/board_id",
    *(
        "/sys/class/infiniband/*/ports/*/counters/" + counter
        for counter in (
            "symbol_error",
            "link_downed",
            "link_error_recovery",
            "local_link_integrity_errors",
            "excessive_buffer_overrun_errors",
        )
    ),
    "/proc/driver/nvidia/gpus/*/information",
)
PRIVATE_PARAMETERS = ("BOOTIF=", "ip=", "nfsroot=", "netconsole=", "hostname=", "systemd.hostname=")
SECURE_BOOT_VARIABLES = "/sys/firmware/efi/efivars/SecureBoot-*"


def ask(machine: Machine) -> Iterator[Answer]:
    for path in FILES:
        yield machine.file(path)
    yield machine.glob("/sys/class/iommu/*")
    yield machine.ask("file:/proc/cmdline", lambda: _command_line(machine))
    yield machine.ask("uname", lambda: _uname(machine))
    yield machine.ask("processor", lambda: machine.read("/proc/cpuinfo").split("\n\n", 1)[0])
    yield machine.ask("secure-boot", lambda: _secure_boot(machine))
    for pattern in DRIVER_FILES:
        yield from machine.files(pattern)


def _command_line(machine: Machine) -> str:
    """The kernel's parameters, without those that name this machine on its network."""
    words = machine.read("/proc/cmdline").split()
    return " ".join(word for word in words if not word.startswith(PRIVATE_PARAMETERS))


def _uname(machine: Machine) -> Dict[str, str]:
    if machine.root == "/":
        this = os.uname()
        return {"release": this.release, "machine": this.machine, "sysname": this.sysname}
    names = {"release": "osrelease", "machine": "arch", "sysname": "ostype"}
    return {key: machine.read("/proc/sys/kernel/" + name).strip() for key, name in names.items()}


def _secure_boot(machine: Machine) -> int:
    """The last byte of the EFI variable SecureBoot: 1 if it is on; the four bytes before it are attributes."""
    paths = machine.matching(SECURE_BOOT_VARIABLES)
    if not paths:
        raise FileNotFoundError("the EFI variable SecureBoot does not exist")
    with open(machine.path(paths[0]), "rb") as file:
        return file.read()[-1]
