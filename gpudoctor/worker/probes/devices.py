"""The device nodes of the driver and of InfiniBand, and the user and groups that open them."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, Dict, Iterator, List, Optional, Set

from gpudoctor.worker.probes.machine import Answer, Machine

PATTERNS = (
    "/dev/nvidia*",
    "/dev/nvidia-caps/*",
    "/dev/nvidia-caps-imex-channels/*",
    "/dev/dxg",
    "/dev/dri/render*",
    "/dev/infiniband/*",
)
FOLDERS = ("/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels")
# Never a GPU's own node: opening it can initialise the GPU.
OPENED = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/dxg")
MAXIMUM_NODES = 256  # for each pattern; a fabric has 2048 channels, all alike
FIRST_PERSONAL_GROUP = 1000  # groups from here on can have a user's name


def ask(machine: Machine) -> Iterator[Answer]:
    question, nodes = machine.ask("devices", lambda: {path: _node(machine, path) for path in _paths(machine)})
    yield question, nodes
    owners = {node["gid"] for node in (nodes.value or {}).values() if "gid" in node}
    yield machine.ask("identity", lambda: _identity(machine, owners))


def _paths(machine: Machine) -> List[str]:
    paths = [path for pattern in PATTERNS for path in machine.matching(pattern)[:MAXIMUM_NODES]]
    return [path for path in paths if path not in FOLDERS]


def _node(machine: Machine, path: str) -> Dict[str, Any]:
    real = machine.path(path)
    try:
        status = os.stat(real)
    except OSError as failure:
        return {"error": _name(failure)}
    return {
        "type": _type(status.st_mode),
        "mode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "major": os.major(status.st_rdev),
        "minor": os.minor(status.st_rdev),
        "access": os.access(real, os.R_OK | os.W_OK),
        "opened": path in OPENED,
        "open_error": _open_error(machine, path) if path in OPENED else None,
    }


def _type(mode: int) -> str:
    if stat.S_ISCHR(mode):
        return "character"
    return "directory" if stat.S_ISDIR(mode) else "other"


def _open_error(machine: Machine, path: str) -> Optional[str]:
    """The name of the error when opening the node: a device cgroup can deny what the mode bits allow."""
    machine.at("devices", "open " + path)
    try:
        os.close(os.open(machine.path(path), os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as failure:
        return _name(failure)
    return None


def _name(failure: OSError) -> str:
    return errno.errorcode.get(failure.errno or 0, str(failure.errno))


def _identity(machine: Machine, owners: Set[int]) -> Dict[str, Any]:
    """The process's ids, and the names of its groups and of those that own nodes; "" if a name may be a person's."""
    names = _group_names(machine)
    own = {os.getegid(), *os.getgroups()}
    return {
        "uid": os.geteuid(),
        "gid": os.getegid(),
        "groups": {str(gid): names.get(gid, "") for gid in sorted(own)},
        "owners": {str(gid): names.get(gid, "") for gid in sorted(owners)},
    }


def _group_names(machine: Machine) -> Dict[int, str]:
    """The system's groups, from the file, because a directory service can hang."""
    try:
        entries = [line.split(":") for line in machine.read("/etc/group").splitlines()]
    except OSError:
        return {}
    groups = {int(entry[2]): entry[0] for entry in entries if len(entry) > 2 and entry[2].isdigit()}
    return {gid: name for gid, name in groups.items() if gid < FIRST_PERSONAL_GROUP}
