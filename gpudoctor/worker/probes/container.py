"""Asks whether this is a container, and what its engine provides: capabilities, namespaces, mounts."""

from __future__ import annotations

import os
import re
from typing import Dict, Iterator, List

from gpudoctor.worker.probes.machine import Answer, Machine

FILES = (
    "/proc/self/cgroup",
    "/proc/1/cgroup",
    "/proc/2/comm",
    "/proc/self/uid_map",
    "/proc/sys/kernel/cap_last_cap",
    "/run/systemd/container",
    "/sys/fs/cgroup/cgroup.controllers",
)
MARKS = (
    "/.dockerenv",
    "/run/.containerenv",
    "/.singularity.d",
    "/run/secrets/kubernetes.io",
    "/var/run/secrets/kubernetes.io",
)
MOUNTS = re.compile(r"nvidia|cuda|libnv|/dev/shm$|/dev/dxg$|wsl")
PRIVATE = re.compile(r"/(home|root|mnt|media)/")  # mounts there are usually named after people and projects


def ask(machine: Machine) -> Iterator[Answer]:
    yield machine.ask("file:/proc/self/status", lambda: _status(machine))
    for path in FILES:
        yield machine.file(path)
    yield machine.ask("container-marks", lambda: _marks(machine))
    yield machine.ask("mounts", lambda: _mounts(machine))


def _status(machine: Machine) -> str:
    """Only the relevant lines of the file."""
    lines = machine.read("/proc/self/status").splitlines(True)
    return "".join(line for line in lines if line.startswith(("Cap", "Seccomp", "NoNewPrivs")))


def _marks(machine: Machine) -> Dict[str, bool]:
    marks = {path: os.path.lexists(machine.path(path)) for path in MARKS}
    return dict(marks, **{"/etc/rc": _is_made_by_enroot(machine)})


def _is_made_by_enroot(machine: Machine) -> bool:
    """Enroot's only mark is the start script that it writes, whose comments are the image's labels.

    https://github.com/NVIDIA/enroot/blob/master/src/docker.sh
    """
    script = machine.call(lambda: machine.read("/etc/rc")).value or ""
    return "enroot-provenance" in script or ". /etc/rc.local" in script


def _mounts(machine: Machine) -> List[Dict[str, str]]:
    mounts = map(_mount, machine.read("/proc/self/mountinfo").splitlines())
    return [mount for mount in mounts if _matters(mount["point"])]


def _mount(line: str) -> Dict[str, str]:
    """One line of mountinfo: `id parent device root POINT OPTIONS tag… - TYPE source options`."""
    fields, _, filesystem = line.partition(" - ")
    point, options = fields.split()[4:6]
    return {"point": point, "type": filesystem.split()[0], "options": options}


def _matters(point: str) -> bool:
    return point == "/" or bool(MOUNTS.search(point) and not PRIVATE.match(point))
