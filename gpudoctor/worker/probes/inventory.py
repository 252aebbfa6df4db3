"""What the machine is made of other than its GPUs: processors, disks, network adapters, and which cloud it belongs to."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from functools import partial
from typing import Any, Dict, Iterator, List, Optional

from gpudoctor.worker.probes.machine import Answer, Machine

CPUS = "/sys/devices/system/cpu"
NOT_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd", "zd", "drbd", "bcache", "rbd")
# An asset tag can be a number that an owner gave to a machine: only those that all machines of a cloud have are kept.
CLOUD_TAGS = ("7783-7084-3265-9085-8269-3286-77", "OracleCloud.com", "Amazon EC2")
PROFILE = "/sys/firmware/acpi/platform_profile"
POWERD = "/usr/bin/nvidia-powerd"
INSTANCE_DATA = "/run/cloud-init/instance-data.json"
# Where cloud-init keeps the type of an instance; it removes what is private from this file, which all users can read.
TYPE_PATHS = (
    ("ds", "meta_data", "imds", "compute", "vmSize"),
    ("ds", "meta_data", "instance-type"),
    ("ds", "meta_data", "instance_type"),
    ("ds", "meta_data", "machine-type"),
    ("ds", "meta_data", "shape"),
    ("ds", "meta_data", "opc_v2", "instance", "shape"),
)


def ask(machine: Machine) -> Iterator[Answer]:
    yield machine.ask("cloud", lambda: _cloud(machine))
    yield machine.ask("cpu-topology", lambda: _topology(machine))
    yield machine.ask("cpu-frequency", lambda: _frequency(machine))
    yield machine.ask("disks", lambda: _disks(machine))
    yield machine.ask("network-interfaces", lambda: _interfaces(machine))
    yield machine.ask("infiniband-rates", lambda: _rates(machine))
    yield machine.ask("power-supply", lambda: _power_supply(machine))
    yield machine.ask("boot", lambda: _boot(machine))


def _power_supply(machine: Machine) -> Dict[str, Any]:
    """What a laptop's firmware and NVIDIA's service for it decide the power of the GPU by."""
    supplies = machine.matching("/sys/class/power_supply/*")
    kinds = [(_text(machine, folder + "/type"), _text(machine, folder + "/scope"), folder) for folder in supplies]
    return {
        "profile": _text(machine, PROFILE),
        "profiles": _text(machine, PROFILE + "_choices").split(),
        "batteries": sum(kind == "Battery" and scope != "Device" for kind, scope, _ in kinds),  # not those of a mouse
        "mains": [_text(machine, folder + "/online") for kind, _, folder in kinds if kind == "Mains"],
        "has_powerd": os.path.lexists(machine.path(POWERD)),
    }


def _boot(machine: Machine) -> str:
    """The same for all snapshots between two boots; the id itself would name this machine."""
    return hashlib.sha256(machine.read("/proc/sys/kernel/random/boot_id").encode()).hexdigest()[:12]


def _cloud(machine: Machine) -> Dict[str, str]:
    tag = _text(machine, "/sys/class/dmi/id/chassis_asset_tag")
    kind = machine.call(lambda: _instance_type(json.loads(machine.read(INSTANCE_DATA)))).value
    return {"asset_tag": tag if tag in CLOUD_TAGS else "", "instance_type": kind or ""}


def _instance_type(data: Any) -> str:
    for path in TYPE_PATHS:
        found = data
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, str):
            return found.rsplit("/", 1)[-1]  # Google's is projects/NUMBER/machineTypes/NAME
    return ""


def _topology(machine: Machine) -> Dict[str, Any]:
    """The kernel's lists of processors, such as 0-191, and how many cores and sockets those that are online belong to."""
    lists = {name: machine.read("%s/%s" % (CPUS, name)).strip() for name in ("present", "online", "offline")}
    cores, sockets = set(), set()
    for folder in machine.matching(CPUS + "/cpu[0-9]*/topology"):
        socket = _text(machine, folder + "/physical_package_id")
        cores.add((socket, _text(machine, folder + "/die_id"), _text(machine, folder + "/core_id")))
        sockets.add(socket)
    return dict(lists, cores=len(cores), sockets=len(sockets))


def _frequency(machine: Machine) -> Dict[str, Dict[str, int]]:
    """Setting -> value -> on how many processors."""
    names = ("scaling_driver", "scaling_governor", "energy_performance_preference")
    folders = machine.matching(CPUS + "/cpu[0-9]*/cpufreq")
    values = {name: Counter(filter(None, (_text(machine, "%s/%s" % (folder, name)) for folder in folders))) for name in names}
    return {name: dict(counted) for name, counted in values.items()}


def _disks(machine: Machine) -> Dict[str, Dict[str, Any]]:
    names = sorted(os.listdir(machine.path("/sys/block")))
    disks = [name for name in names if not name.startswith(NOT_DISKS) and _is_whole(machine, name)]
    return {name: _disk(machine, "/sys/block/" + name) for name in disks}


def _is_whole(machine: Machine, name: str) -> bool:
    """Not a path of a disk with several of them, nor a removable one."""
    return os.path.lexists(machine.path("/sys/block/%s/size" % name)) and _text(machine, "/sys/block/%s/removable" % name) != "1"


def _disk(machine: Machine, folder: str) -> Dict[str, Any]:
    sectors = _text(machine, folder + "/size")
    return {
        "bytes": 512 * int(sectors) if sectors else None,
        "model": _text(machine, folder + "/device/model"),
        "transport": _text(machine, folder + "/device/transport"),
        "rotational": _text(machine, folder + "/queue/rotational") == "1",
    }


def _interfaces(machine: Machine) -> Dict[str, Dict[str, Any]]:
    root = "/sys/class/net"
    return {name: _interface(machine, "%s/%s" % (root, name)) for name in sorted(os.listdir(machine.path(root)))}


def _interface(machine: Machine, folder: str) -> Dict[str, Any]:
    speed = _text(machine, folder + "/speed")  # of an interface that is down, the kernel has none
    return {
        "state": _text(machine, folder + "/operstate"),
        "type": _text(machine, folder + "/type"),
        "mbit_per_s": int(speed) if speed and speed.lstrip("-").isdigit() else None,
        "driver": _link(machine, folder + "/device/driver"),
        "device": _link(machine, folder + "/device"),
    }


def _rates(machine: Machine) -> Dict[str, Optional[str]]:
    """Adapter/port -> its rate in words of the kernel: 400 Gb/sec (4X NDR)."""
    paths: List[str] = machine.matching("/sys/class/infiniband/*/ports/*/rate")
    return {"%s/%s" % (path.split("/")[4], path.split("/")[6]): _text(machine, path) for path in paths}


def _text(machine: Machine, path: str) -> str:
    """ "" if it does not exist or the device does not have it."""
    return str(machine.call(partial(machine.read, path)).value or "").strip()


def _link(machine: Machine, path: str) -> str:
    found = machine.call(lambda: os.readlink(machine.path(path))).value
    return os.path.basename(found) if found else ""
