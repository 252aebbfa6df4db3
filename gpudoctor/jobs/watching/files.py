"""What a process has open: GPUs, and files on file systems of the network. Paths are not kept."""

from __future__ import annotations

import os
from functools import lru_cache

from gpudoctor.jobs.watching.tree import read

MOST = 200  # descriptors that are looked at
NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "ceph",
    "beegfs",
    "gpfs",
    "wekafs",
    "9p",
    "glusterfs",
    "fuse.",
    "afs",
    "vboxsf",
    "virtiofs",
)


def opened(pid: int) -> tuple[int | None, tuple[int, ...], dict[str, str]]:
    """How many descriptors (None: not permitted), the numbers of its GPUs' device nodes, kind of file system -> where from."""
    folder = f"/proc/{pid}/fd"
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except OSError:
        return None, (), {}
    gpus: set[int] = set()
    systems: dict[str, str] = {}
    for name in names[:MOST]:
        try:
            path = os.readlink(f"{folder}/{name}")  # noqa: PTH115 (hundreds at a time)
        except OSError:
            continue
        if path.startswith("/dev/nvidia") and path[11:].isdigit():
            gpus.add(int(path[11:]))
        elif path[0] == "/" and not path.startswith(("/dev/", "/proc/", "/sys/")):
            kind, mount = _mounted(path, _mounts(pid))
            if kind.startswith(NETWORK):
                systems[kind] = mount
    return len(names), tuple(sorted(gpus)), systems


@lru_cache(maxsize=64)
def _mounts(pid: int) -> tuple[tuple[str, str], ...]:
    """(folder, kind) of each mount, the deepest folder first."""
    found = []
    for line in read(f"/proc/{pid}/mountinfo", 1 << 18).splitlines():
        before, _, after = line.partition(" - ")
        fields, more = before.split(), after.split()
        if len(fields) > 4 and more:
            found.append((fields[4], more[0]))
    return tuple(sorted(found, key=lambda entry: -len(entry[0])))


def _mounted(path: str, mounts: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    for folder, kind in mounts:
        if path == folder or path.startswith(folder.rstrip("/") + "/"):
            return kind, folder
    return "", ""
