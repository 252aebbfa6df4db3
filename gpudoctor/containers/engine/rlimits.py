"""The process limits that GPU work needs raised, and whether an engine can raise them.

In sandboxes, LXC and rootless, a container that requests more than its daemon is allowed to set does not start ("error setting
rlimit type 8"). Checking before avoids a failed start.
"""

from __future__ import annotations

import re
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoctor.containers.engine.client import Engine

WANTED = {"memlock": "-1", "stack": "67108864"}  # what NVIDIA's images recommend
UNLIMITED = -1
CAP_SYS_RESOURCE = 24
ALL_USERS = ["0", "0", "4294967295"]  # the user namespace of the host
ROWS = {"memlock": "Max locked memory", "stack": "Max stack size"}  # of /proc/PID/limits
TYPES = {"3": "stack", "8": "memlock"}  # the numbers in runc's messages
SAID = re.compile(r"setting rlimits?\b|setrlimit")
WHICH = re.compile(r"rlimit type (?P<number>\d+)|RLIMIT_(?P<name>[A-Z]+)")


def refused(engine: Engine) -> tuple[str, ...]:
    """The names that this engine certainly cannot raise; empty if that is unknown."""
    process = _process(engine)
    try:
        if process is None or _may_raise(process):
            return ()
        limits = (process / "limits").read_text()
    except OSError:
        return ()
    return tuple(name for name, value in WANTED.items() if not _within(limits, name, int(value)))


def blamed(message: str) -> tuple[str, ...]:
    """The names that an engine reports it could not set: all of them if the message names none."""
    if not SAID.search(message):
        return ()
    found = WHICH.search(message)
    name = "" if not found else TYPES.get(found["number"] or "", (found["name"] or "").lower())
    return (name,) if name in WANTED else tuple(WANTED)


def _process(engine: Engine) -> Path | None:
    """The /proc folder of the daemon on this machine; for Podman, which has no daemon, of this process."""
    if not engine.is_local:
        return None
    if engine.is_podman:
        return Path("/proc/self")
    pid = _listener(engine.endpoint.removeprefix("unix://") or "/var/run/docker.sock")
    return Path(f"/proc/{pid}") if pid else None


def _listener(path: str) -> int:
    """The process that listens on a socket. If systemd starts the daemon, that is systemd, with the same permissions."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(path)
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError:
        return 0
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def _may_raise(process: Path) -> bool:
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
    has_capability = int(status["CapEff"], 16) >> CAP_SYS_RESOURCE & 1
    return bool(has_capability) and (process / "uid_map").read_text().split() == ALL_USERS


def _within(limits: str, name: str, value: int) -> bool:
    row = next(line for line in limits.splitlines() if line.startswith(ROWS[name]))
    hard = row[len(ROWS[name]) :].split()[1]
    return hard == "unlimited" or UNLIMITED != value <= int(hard)
