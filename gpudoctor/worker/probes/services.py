"""Asks which services of the driver and of containers run, and which of their users; reads Fabric Manager's log."""

from __future__ import annotations

import os
import re
import stat
from typing import Any, Dict, Iterator, List

from gpudoctor.worker.probes.machine import Answer, Machine

UNITS = (
    "nvidia-fabricmanager.service",
    "nvidia-persistenced.service",
    "nvidia-imex.service",
    "nvidia-gridd.service",
    "docker.service",
    "containerd.service",
    "nvidia-suspend.service",
    "nvidia-resume.service",
    "nvidia-cdi-refresh.service",
    "nvidia-dcgm.service",
)
PROPERTIES = "Id,LoadState,ActiveState,SubState,Result,UnitFileState"
PROCESSES = (
    "nv-fabricmanager",
    "nvlsm",
    "nvidia-persistenced",
    "nvidia-powerd",
    "nvidia-imex",
    "nvidia-gridd",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nv-hostengine",
    "nvidia-device-plugin",
    "dockerd",
    "containerd",
    "kubelet",
    "Xorg",
    "gnome-shell",
    "nvidia-smi",
)
TWINS = "nvidia-cuda-mps"  # both names share their first 15 characters, which is all the kernel keeps
NAMES = dict({name[:15]: name for name in PROCESSES}, **{TWINS: TWINS})
LOG_BYTES = 64 << 10
PRIVATE_SETTING = re.compile(r"(?im)^(\s*\w*(?:address|user|password|credential)\w*\s*=\s*).+")


def ask(machine: Machine) -> Iterator[Answer]:
    yield machine.ask("service-files", lambda: _exist(machine, ("/etc/nvidia-imex/nodes_config.cfg",)))
    yield machine.file("/var/log/fabricmanager.log", LOG_BYTES)
    yield machine.ask("licence-tokens", lambda: _modes(machine, "/etc/nvidia/ClientConfigToken/*"))
    yield machine.ask("file:/etc/nvidia/gridd.conf", lambda: _licence_configuration(machine))
    yield machine.ask("processes", lambda: _processes(machine))
    yield machine.command("systemctl", "show", "--no-pager", "--property=" + PROPERTIES, *UNITS, timeout=2.0)
    yield machine.command("nv-fabricmanager", "--version", timeout=1.0)


def _exist(machine: Machine, paths: Any) -> Dict[str, bool]:
    return {path: os.path.lexists(machine.path(path)) for path in paths}


def _modes(machine: Machine, pattern: str) -> List[Dict[str, Any]]:
    """Name and permissions: a token that its service cannot read is one cause of an unlicensed vGPU."""
    modes = [(path, stat.S_IMODE(os.stat(machine.path(path)).st_mode)) for path in machine.matching(pattern)]
    return [{"name": os.path.basename(path), "mode": mode} for path, mode in modes]


def _licence_configuration(machine: Machine) -> str:
    """The settings of the vGPU licence; servers, users and passwords without their values."""
    return PRIVATE_SETTING.sub(r"\1removed", machine.read("/etc/nvidia/gridd.conf"))


def _processes(machine: Machine) -> List[Dict[str, Any]]:
    """The processes of interest, and NVIDIA's processes that hang in the kernel."""
    machine.read("/proc/1/stat")  # fails if the processes of other users are hidden (hidepid): an empty list then means nothing
    texts = [_text(machine, path) for path in machine.matching("/proc/[0-9]*/stat")]
    processes = [_process(text) for text in texts if text]  # empty: ended meanwhile
    return [dict(process, name=_full_name(machine, process)) for process in processes if _matters(process)]


def _text(machine: Machine, path: str) -> str:
    return str(machine.call(lambda: machine.read(path)).value or "")


def _matters(process: Dict[str, Any]) -> bool:
    return process["name"] in NAMES or (process["name"].startswith("nv") and process["state"] == "D")


def _process(text: str) -> Dict[str, Any]:
    """The start of /proc/PID/stat: `PID (NAME) STATE …`; the name can contain spaces and brackets."""
    pid, _, rest = text.partition(" (")
    name, _, rest = rest.rpartition(") ")
    return {"name": name, "pid": int(pid), "state": rest[:1]}


def _full_name(machine: Machine, process: Dict[str, Any]) -> str:
    name = str(process["name"])
    if name != TWINS or process["state"] == "D":  # reading the command line of a stuck process can hang
        return NAMES.get(name, name)
    command = _text(machine, "/proc/%d/cmdline" % process["pid"]).split("\0")[0].split(" ")[0]
    return os.path.basename(command) or name
