"""The facts that every report carries: an overview of the machine in one screen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.software import versions
from gpudoctor.facts.versions import dotted
from gpudoctor.model import Skip

Fields = dict[str, Any]
Read = Callable[[Callable[[Facts], Fields], Facts], Fields]
"""Calls a function with these facts, or knows what it returns."""


def plainly(make: Callable[[Facts], Fields], facts: Facts) -> Fields:
    return make(facts)


def target(facts: Facts) -> dict[str, Any]:
    """What was examined: the interpreter and its system."""
    return readable(
        {
            "kind": lambda: _kind(facts),
            "image": lambda: _start(facts)["image"],
            "container_name": lambda: _start(facts)["container"],
            "container_engine": lambda: f"{_start(facts)['engine']} {_start(facts)['version']}".strip(),
            "gpu_mode": lambda: _start(facts)["mode"],
            "asked": lambda: _start(facts)["asked"],
            "expected_gpus": lambda: facts.expected["gpus"],
            "entrypoint_left_out": lambda: _start(facts)["replaced"],
            "host_not_asked": lambda: facts.replies.value("host-not-asked"),
            "reduced": lambda: facts.replies.value("reduced"),
            "not_collected": lambda: facts.replies.value("not-collected"),
            "python": lambda: facts.python.executable,
            "python_found": lambda: facts.replies.value("chosen-python")["found"],
            "python_is_own": lambda: facts.replies.value("chosen-python")["own"],
            "python_unusable": lambda: facts.replies.value("chosen-python")["unusable"],
            "python_version": lambda: dotted(facts.python.version),
            "platform": lambda: list(facts.system.platform),
            "distribution": lambda: facts.system.distribution_name,
            "kernel": lambda: facts.system.kernel,
            "architecture": lambda: facts.system.architecture,
            "wsl": lambda: facts.system.wsl,
            "hypervisor": lambda: facts.system.hypervisor,
            "container": lambda: facts.container.engine,
        }
    )


def _start(facts: Facts) -> dict[str, Any]:
    """How the examined container started. A text may show a failed start without its image: then no container was examined."""
    found = dict(facts.replies.value("container-start"))
    if not (found["image"] or found["container"]):
        raise Skip("the text names no image")
    return found


def _kind(facts: Facts) -> str:
    """What was examined. If a container did not start, its host was examined instead."""
    try:
        start = _start(facts)
    except Skip:
        return "job" if facts.job.alone else "texts" if facts.texts.alone else "interpreter"
    return ("container" if start["container"] else "image") if start["started"] else "host"


def overview(facts: Facts, read: Read = plainly) -> dict[str, Any]:
    """Driver, CUDA, GPUs and the important packages; what could not be read is left out."""
    gpus = readable({"gpus": lambda: [_gpu(gpu) for gpu in facts.nvml.gpus]})
    return {**read(_driver, facts), **gpus, **read(_machine, facts)}


def _driver(facts: Facts) -> Fields:
    return readable(
        {
            "driver_version": lambda: facts.driver.module_version or facts.nvml.driver_version,
            "driver_is_open": lambda: facts.driver.module_is_open,
            "cuda_driver_version": lambda: _dotted(facts.cuda.driver_version),
        }
    )


def _machine(facts: Facts) -> Fields:
    return readable(
        {
            "pci_gpus": lambda: [function.address for function in facts.pci.gpus],
            "toolkits": lambda: {toolkit.root: _dotted(toolkit.version) for toolkit in facts.toolchain.toolkits},
            "packages": lambda: _packages(facts),
            "versions": lambda: versions(facts),
            "other_gpus": lambda: _other_gpus(facts),
            "profiled": lambda: facts.job.traced.overview,
            "watched": lambda: facts.job.watched.overview,
            "cpus": lambda: facts.limits.cpu_count,
            "memory_mib": lambda: facts.system.memory_mib["MemTotal"],
        }
    )


def _gpu(gpu: Any) -> dict[str, Any]:
    return readable(
        {
            "index": lambda: gpu.index,
            "name": lambda: gpu.name,
            "uuid": lambda: gpu.uuid,
            "bus_id": lambda: gpu.bus_id,
            "memory_mib": lambda: gpu.memory_total_mib,
        }
    )


_VENDORS = {"1002": "AMD", "8086": "Intel"}


def _other_gpus(facts: Facts) -> list[str]:
    """The vendors of GPUs that gpudoctor does not cover; a server's management controller is no GPU."""
    return [_VENDORS[vendor] for vendor in dict.fromkeys(each[:4] for each in facts.pci.other_display) if vendor in _VENDORS]


FRAMEWORKS = ("torch", "triton", "jax", "jaxlib", "tensorflow", "onnxruntime-gpu", "numba", "numba-cuda", "numpy")


def _packages(facts: Facts) -> dict[str, str]:
    wanted = {name for name in facts.python.packages if name in FRAMEWORKS or name.startswith(("cupy", "nvidia-"))}
    return {name: facts.python.packages[name][0].version for name in sorted(wanted)}


def _dotted(version: tuple[int, ...] | None) -> str | None:
    return dotted(version) if version else None


def readable(fields: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Name -> value of the readable fields."""
    values = {}
    for name, read in fields.items():
        with contextlib.suppress(Exception):  # a broken fact is an ERROR in the check that reads it; here it is left out
            values[name] = read()
    return values
