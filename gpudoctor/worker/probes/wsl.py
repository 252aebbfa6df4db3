"""Asks what the Windows Subsystem for Linux provides; nothing on other machines."""

from __future__ import annotations

import gzip
import os
import re
import stat
from typing import Any, Dict, Iterator

from gpudoctor.worker.probes.machine import Answer, Machine

LIBRARIES = "/usr/lib/wsl/lib"
MARKS = ("/dev/dxg", "/run/WSL")
# Settings that name the user, the machine or their commands.
PRIVATE = re.compile(r"(?m)^(\s*(?:default|hostname|command)\s*=).*")


def ask(machine: Machine) -> Iterator[Answer]:
    if "microsoft" not in (machine.call(lambda: machine.read("/proc/version")).value or "").lower():
        yield machine.ask("wsl", lambda: {"is_wsl": False})
        return
    yield machine.ask("wsl", lambda: {"is_wsl": True, "marks": _marks(machine)})
    yield machine.ask("wsl-libraries", lambda: _listing(machine))
    yield machine.glob("/usr/lib/wsl/drivers/*")
    yield machine.ask("file:/etc/wsl.conf", lambda: PRIVATE.sub(r"\1", machine.read("/etc/wsl.conf")))
    yield machine.ask("kernel-config", lambda: _kernel_config(machine))


def _marks(machine: Machine) -> Dict[str, bool]:
    return {path: os.path.lexists(machine.path(path)) for path in MARKS}


def _listing(machine: Machine) -> Dict[str, Dict[str, Any]]:
    """Name -> kind and size, for the folder that Windows mounts."""
    folder = machine.path(LIBRARIES)
    return {name: _entry(os.lstat(os.path.join(folder, name))) for name in sorted(os.listdir(folder))}


def _entry(about: os.stat_result) -> Dict[str, Any]:
    return {"kind": "link" if stat.S_ISLNK(about.st_mode) else "file", "bytes": about.st_size}


def _kernel_config(machine: Machine) -> str:
    """The kernel configuration's lines about the paravirtual GPU; empty if it has no such lines."""
    with gzip.open(machine.path("/proc/config.gz"), "rt") as lines:
        return "".join(line for line in lines if "CONFIG_DXGKRNL" in line)
