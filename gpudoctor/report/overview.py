"""What people compare first about two machines: GPUs, driver, CUDA, frameworks, kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudoctor.model import Report

_PACKAGES = {"torch": "torch", "jax": "jax", "tensorflow": "tensorflow"}
_LIBRARIES = {"cuDNN": "nvidia-cudnn", "NCCL": "nvidia-nccl"}  # of wheels, with or without a -cu13 at the end


def rows(report: Report) -> dict[str, str]:
    """Name -> value, of what is known."""
    return {name: " ".join(str(value).split()) for name, value in _rows(report) if value}


def _rows(report: Report) -> Iterator[tuple[str, Any]]:
    facts, target = report.facts, report.target
    yield "GPU", _gpus(report)
    yield "driver", facts.get("driver_version")
    yield "CUDA", facts.get("cuda_driver_version")
    packages = facts.get("packages") or {}
    for name, package in _PACKAGES.items():
        yield name, packages.get(package)
    for name, package in _LIBRARIES.items():
        yield name, next((version for other, version in sorted(packages.items()) if other.partition("-cu1")[0] == package), None)
    yield "toolkit", ", ".join(sorted({str(version) for version in (facts.get("toolkits") or {}).values() if version}))
    yield "Python", target.get("python_version")
    yield "kernel", target.get("kernel")
    yield "system", target.get("distribution")


def _gpus(report: Report) -> str:
    names = [str(gpu.get("name") or "unknown") for gpu in report.facts.get("gpus") or ()]
    if not names and (on_bus := report.facts.get("pci_gpus")):
        return f"{len(on_bus)} on the PCI bus"
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
