"""What was examined, in a line each: the system, its GPUs, its Python."""

from __future__ import annotations

from collections import Counter

from gpudoctor.model import Report


def system(report: Report) -> str:
    """Distribution, kernel and the walls around: container, WSL."""
    target = report.target
    parts = [str(target.get("distribution", "Linux of unknown distribution"))]
    parts += [f"kernel {target['kernel']}"] if "kernel" in target else []
    parts += [f"WSL{target['wsl']}"] if target.get("wsl") else []
    if engine := target.get("container"):
        parts.append("in a container" if engine == "unknown" else f"in a {engine} container")
    return ", ".join(parts)


def gpus(report: Report) -> str:
    """How many of which GPU and their driver, or what is known without NVML."""
    facts = report.facts
    names = Counter(gpu.get("name", "unnamed GPU") for gpu in facts.get("gpus", ()))
    said = ", ".join(name if number == 1 else f"{number} × {name}" for name, number in names.items())
    if not said and (found := len(facts.get("pci_gpus", ()))):
        said = f"{found} on the PCI bus"
    elif not said:
        said = "none seen" if "gpus" in facts or "pci_gpus" in facts else "not known"
    driver = facts.get("driver_version")
    return said + (f", driver {driver}" if driver else ", no driver loaded" if "driver_version" in facts else "")


def python(report: Report) -> str:
    version, path = report.target.get("python_version"), report.target.get("python")
    return f"{version} at {path}" if version and path else "not known"
