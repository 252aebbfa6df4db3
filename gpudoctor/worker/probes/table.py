"""All probes, with their time limits."""

from __future__ import annotations

import importlib
from typing import Callable, Iterable, NamedTuple, Tuple

from gpudoctor.worker.probes.machine import Answer, Machine


class Probe(NamedTuple):
    """A group of questions asked by one process, which is killed after `seconds`."""

    name: str
    ask: Callable[[Machine], Iterable[Answer]]
    seconds: float
    after: str = ""  # the probe whose answers it needs


def _in(module: str, name: str = "ask") -> Callable[[Machine], Iterable[Answer]]:
    """A function of a module that is loaded when it is called: in the target, which compiles it, that is half of a short job."""

    def ask(machine: Machine) -> Iterable[Answer]:
        found: Iterable[Answer] = getattr(importlib.import_module("gpudoctor.worker.probes." + module), name)(machine)
        return found

    return ask


# The long ones first. CUDA waits for NVML, because it uses GPU memory and has to know whether other processes need it.
PROBES: Tuple[Probe, ...] = (
    Probe("nvml", _in("nvml"), 8),
    Probe("libraries", _in("libraries"), 5),
    Probe("packages", _in("packages"), 5),
    Probe("package-files", _in("package_files"), 5),
    Probe("toolchain", _in("toolchain"), 5),
    Probe("modules", _in("modules"), 10),
    Probe("runtime", _in("runtime"), 5),
    Probe("kernel-log", _in("kernel_log"), 5),
    Probe("services", _in("services"), 5),
    Probe("system", _in("system"), 3),
    Probe("pci", _in("pci"), 3),
    Probe("inventory", _in("inventory"), 3),
    Probe("addresses", _in("addresses"), 3),
    Probe("devices", _in("devices"), 3),
    Probe("environment", _in("environment"), 3),
    Probe("interpreter", _in("interpreter"), 3),
    Probe("sources", _in("sources"), 3),
    Probe("container", _in("container"), 3),
    Probe("limits", _in("limits"), 3),
    Probe("wsl", _in("wsl"), 3),
    Probe("cuda", _in("cuda"), 8, after="nvml"),
)
DEEP: Tuple[Probe, ...] = (Probe("package-hashes", _in("package_files", "ask_contents"), 90), Probe("serials", _in("serials"), 8))
"""Asked only by name: they take long, or are private."""
