"""What was examined, in a line each: the system, its GPUs, its Python."""

from __future__ import annotations

from collections import Counter

from gpudoctor.model import WAYS, Recognised, Report


def version(report: Report) -> str:
    """The versions of gpudoctor and of its tables."""
    return report.version + (f" (knowledge {report.knowledge})" if report.knowledge else "")


def system(report: Report) -> str:
    """Distribution, kernel and what they run in: container, WSL."""
    target = report.target
    parts = [str(target.get("distribution", "Linux of unknown distribution"))]
    parts += [f"kernel {target['kernel']}"] if "kernel" in target else []
    parts += [f"WSL{target['wsl']}"] if target.get("wsl") else []
    if engine := target.get("container"):
        parts.append("in a container" if engine == "unknown" else f"in a {engine} container")
    return ", ".join(parts)


def is_of_texts(report: Report) -> bool:
    """Whether the report is about texts, or a program, only, without a machine."""
    return report.target.get("kind") in ("texts", "job")


def is_of_job(report: Report) -> bool:
    """Whether a program that ran was examined, and the machine was not."""
    return report.target.get("kind") == "job"


def container_label(report: Report) -> str:
    return "Container" if report.target.get("kind") == "container" else "Image"


def container(report: Report) -> str:
    """The image or container that was examined, and how it got its GPUs; "" for a machine."""
    target = report.target
    if target.get("kind") not in ("image", "container", "host"):
        return ""
    name = target.get("container_name") or ""
    said = f"{name}, image {target['image']}" if name else str(target["image"])
    said += f", {target['container_engine']}" + _mode(str(target["gpu_mode"]))
    if target["kind"] == "host":
        return f"{said}: it did not start, so this report is about the host"
    if replaced := target.get("entrypoint_left_out"):
        said += f", without its entrypoint {replaced}"
    said += f"; host not examined: {target['host_not_asked']}" if target.get("host_not_asked") else ""
    return said + (f"; {target['reduced']}" if target.get("reduced") else "")


_MODES = {
    **{mode: f", GPUs by {way}" for mode, way in WAYS.items()},
    "devices": ", single devices (--device)",
    "none": ", without a GPU",
}


def _mode(mode: str) -> str:
    return _MODES.get(mode, "")


def gpus(report: Report) -> str:
    """The GPUs and their driver, or what is known without NVML."""
    driver = report.facts.get("driver_version")
    said = gpu_names(report)
    return said + (f", driver {driver}" if driver else ", no driver loaded" if "driver_version" in report.facts else "")


def gpus_and_cuda(report: Report) -> str:
    """Also the newest CUDA version that the driver supports. "" if the selected checks did not need to know the GPUs."""
    if {"nvml", "pci"} & {*report.target.get("not_collected", ())} and not {"gpus", "pci_gpus"} & report.facts.keys():
        return ""
    cuda = report.facts.get("cuda_driver_version") if report.facts.get("driver_version") else None
    return gpus(report) + (f", CUDA {cuda}" if cuda else "")


def gpu_names(report: Report) -> str:
    facts = report.facts
    known = facts.get("gpus") or (facts.get("watched") or {}).get("gpus") or ()
    names = Counter(str(gpu.get("name", "unnamed GPU")) for gpu in known)
    said = ", ".join(name if number == 1 else f"{number} × {name}" for name, number in names.items())
    if not said and (found := len(facts.get("pci_gpus", ()))):
        said = f"{found} GPU{'s' * (found != 1)} on the PCI bus"
    elif not said and (seen := _seen_inside(report)):
        said = f"{seen} GPU{'s' * (seen != '1')}" if seen != "0" else "no NVIDIA GPU found"
    elif not said:
        said = "no NVIDIA GPU found" if "gpus" in facts or "pci_gpus" in facts else "GPUs unknown"
        said += "".join(f", {vendor} GPU present but not covered" for vendor in facts.get("other_gpus", ()))
    return said


def _seen_inside(report: Report) -> str:
    """How many GPUs a container has, if only a shell could look: "" if unknown."""
    if {"gpus", "pci_gpus"} & report.facts.keys():
        return ""
    return next((row.container for row in report.comparison if row.what == "GPUs" and row.container.isdecimal()), "")


def python(report: Report) -> str:
    """The interpreter and how it was found, unless the user named it."""
    version, path = report.target.get("python_version"), report.target.get("python")
    if not (version and path):
        return "unknown"
    found = report.target.get("python_found")
    passed_over = [f"{name} cannot be used" for name in report.target.get("python_unusable", ())]
    return f"{version} at {path}" + (f" ({'; '.join([str(found), *passed_over])})" if found else "")


def own_python(report: Report) -> str:
    """A warning if gpudoctor examined the environment that it is installed in, for lack of another; else ""."""
    if not report.target.get("python_is_own"):
        return ""
    return "This is gpudoctor's own environment: name the one that your programs use with --python PATH."


_NAMES = {"cudnn": "cuDNN", "nccl": "NCCL", "container_toolkit": "NVIDIA Container Toolkit"}
_ALWAYS = ("torch", "nvcc")  # said even if it is not installed
_ENGINES = ("docker", "podman")


def software(report: Report) -> str:
    """The versions that decide what runs: `torch 2.8.0+cu128, cuDNN 9.10.2, nvcc not installed`; "" if nothing is known."""
    versions = report.facts.get("versions", {})
    parts = [_version(name, version) for name, version in versions.items() if version is not None or name in _ALWAYS]
    parts += ["no Docker or Podman"] if all(versions.get(name, "") is None for name in _ENGINES) else []
    return ", ".join(parts)


def _version(name: str, version: str | None) -> str:
    said = "not installed" if version is None else version or "(version unknown)"
    return f"{_NAMES.get(name, name)} {said}"


def evidence(text: Recognised) -> str:
    """An input text and its recognised kinds: `train.log, 400 lines: kernel log`."""
    kinds = f": {', '.join(text.kinds)}" if text.kinds else ""
    return f"{text.name}, {text.lines} line{'s' * (text.lines != 1)}{kinds}"
