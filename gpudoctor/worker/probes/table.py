"""All probes, with their time limits."""

from __future__ import annotations

from typing import Callable, Iterable, NamedTuple, Tuple

from gpudoctor.worker.probes import (
    container,
    cuda,
    devices,
    environment,
    interpreter,
    kernel_log,
    libraries,
    limits,
    modules,
    nvml,
    package_files,
    packages,
    pci,
    runtime,
    services,
    sources,
    system,
    toolchain,
    wsl,
)
from gpudoctor.worker.probes.machine import Answer, Machine


class Probe(NamedTuple):
    """A group of questions asked by one process, which is killed after `seconds`."""

    name: str
    ask: Callable[[Machine], Iterable[Answer]]
    seconds: float
    after: str = ""  # the probe whose answers it needs


# The long ones first. CUDA waits for NVML, because it uses GPU memory and has to know whether other processes need it.
PROBES: Tuple[Probe, ...] = (
    Probe("nvml", nvml.ask, 8),
    Probe("libraries", libraries.ask, 5),
    Probe("packages", packages.ask, 5),
    Probe("package-files", package_files.ask, 5),
    Probe("toolchain", toolchain.ask, 5),
    Probe("modules", modules.ask, 10),
    Probe("runtime", runtime.ask, 5),
    Probe("kernel-log", kernel_log.ask, 5),
    Probe("services", services.ask, 5),
    Probe("system", system.ask, 3),
    Probe("pci", pci.ask, 3),
    Probe("devices", devices.ask, 3),
    Probe("environment", environment.ask, 3),
    Probe("interpreter", interpreter.ask, 3),
    Probe("sources", sources.ask, 3),
    Probe("container", container.ask, 3),
    Probe("limits", limits.ask, 3),
    Probe("wsl", wsl.ask, 3),
    Probe("cuda", cuda.ask, 8, after="nvml"),
)
DEEP: Tuple[Probe, ...] = (Probe("package-hashes", package_files.ask_contents, 90),)
"""Asked only by name: they take long."""
