"""How to request GPUs for a container, which depends on the engine, its version and its configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from gpudoctor.containers.engine.client import Engine

KIND = "nvidia.com/gpu"
NO_LABELS = "--security-opt=label=disable"  # SELinux blocks a container's access to the GPUs' nodes
DEVICE = re.compile(r"(?i)\d+(:\d+)?|GPU-[0-9a-f-]+|MIG-[0-9a-f-]+|MIG-GPU-[0-9a-f-]+/\d+/\d+")
# Each of these means an NVIDIA GPU, its driver, or a platform that exposes a GPU differently (WSL2, Jetson).
SIGNS = ("proc/driver/nvidia", "dev/nvidiactl", "dev/dxg", "dev/nvgpu", "dev/nvhost-gpu", "sys/module/nvidia")

NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")  # VGA controller, 3D controller
RESERVING = ("vfio", "pci-stub")  # vfio-pci, and those of vendors such as nvgrace-gpu-vfio-pci


@dataclass(frozen=True)
class Access:
    """The arguments of `run` that request GPUs, and the reason for this mode. mode: cdi, runtime, gpus, podman or none."""

    mode: str
    arguments: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Selection:
    """Which GPUs: all, any `count` of them, or named ones. With none of the three set: no GPU."""

    all: bool = False
    count: int = 0
    devices: tuple[str, ...] = ()

    @property
    def listed(self) -> tuple[str, ...]:
        """As CDI and NVIDIA_VISIBLE_DEVICES expect it."""
        return ("all",) if self.all else self.devices or tuple(map(str, range(self.count)))


def parse(text: str) -> Selection:
    """all, none, 0,2, GPU-…, MIG-…, 0:1 (GPU and MIG instance), count=2; also Docker's spelling: device=0,2."""
    words = text.strip().strip("\"'").strip()
    if words in ("all", "none"):
        return Selection(all=words == "all")
    if found := re.fullmatch(r"count=([1-9]\d{0,3})", words):
        return Selection(count=int(found[1]))
    parts = [part.strip() for part in words.removeprefix("device=").split(",")]
    if not all(DEVICE.fullmatch(part) for part in parts):
        raise UserError(
            f"--gpus: {text!r} is not valid. Use all, none, 0,2 (indexes as in nvidia-smi), GPU-<uuid>, MIG-<uuid>, "
            "0:1 (GPU and MIG instance), or count=2 (any two)"
        )
    return Selection(devices=tuple(dict.fromkeys(parts)))


def access(engine: Engine, gpus: str = "all", mode: str = "auto") -> Access:
    """`gpus` as for `parse`, or auto: all GPUs, or no GPU if this machine cannot provide any."""
    if gpus == "auto" and mode == "auto" and engine.is_local and not has_gpu() and not _is_configured(engine):
        return _none(engine, "this machine has no NVIDIA GPU for containers")
    selection = parse("all" if gpus == "auto" else gpus)
    if mode == "none" or not selection.listed:
        return _none(engine, "no GPU was requested")
    if engine.is_podman:
        return _podman(selection, mode)
    mode, why = (mode, "set by --gpu-mode") if mode != "auto" else _best(engine, selection)
    labels = (NO_LABELS,) if engine.has_selinux else ()
    return Access(mode, (*_ARGUMENTS[mode](selection), *labels), why)


def has_gpu(root: str = "/") -> bool:
    """Whether the kernel shows a GPU, with or without a driver. Starts no process."""
    return any(Path(root, sign).exists() for sign in SIGNS) or any(on_pci(Path(root)))


def on_pci(root: Path) -> Iterator[Path]:
    """The NVIDIA GPUs on PCI that this machine can use, as folders of sysfs."""
    return (device for device in sorted((root / "sys/bus/pci/devices").glob("*")) if _is_gpu(device) and not _is_reserved(device))


def _is_gpu(device: Path) -> bool:
    try:
        vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
    except OSError:
        return False
    return vendor == NVIDIA and kind.startswith(GPU_CLASSES)


def _is_reserved(device: Path) -> bool:
    """Whether the device is reserved for a virtual machine."""
    return any(word in (device / "driver").resolve().name for word in RESERVING)


def _is_configured(engine: Engine) -> bool:
    return "nvidia" in engine.runtimes or any(device.startswith(KIND) for device in engine.devices)


def _none(engine: Engine, why: str) -> Access:
    """If NVIDIA's runtime is the default, GPUs have to be refused explicitly, because CUDA images request all."""
    refusal = ("-e", "NVIDIA_VISIBLE_DEVICES=void") if engine.info.get("DefaultRuntime") == "nvidia" else ()
    return Access("none", refusal, why)


def _podman(selection: Selection, mode: str) -> Access:
    if mode == "runtime":
        raise UserError("--gpu-mode runtime works only with Docker. Podman uses CDI: omit --gpu-mode")
    if mode == "gpus":
        return Access("gpus", (*_gpus(selection), NO_LABELS), "set by --gpu-mode; Podman before 5 ignores --gpus")
    return Access("podman", (*_cdi(selection), NO_LABELS), "Podman uses CDI for GPUs")


def _best(engine: Engine, selection: Selection) -> tuple[str, str]:
    known = [device for device in engine.devices if device.startswith(KIND)]
    if known and {f"{KIND}={name}" for name in selection.listed} <= set(known):
        return "cdi", f"Docker {engine.version} knows the CDI devices of {KIND}"
    no_cdi = f"its only CDI devices for GPUs are {', '.join(known)}" if known else "it has no CDI device for a GPU"
    if "nvidia" in engine.runtimes and "Docker Desktop" not in str(engine.info.get("OperatingSystem")):
        return "runtime", f"Docker {engine.version} has the nvidia runtime; {no_cdi}"
    return "gpus", f"Docker {engine.version} has no usable nvidia runtime; {no_cdi}"


def _cdi(selection: Selection) -> tuple[str, ...]:
    return tuple(word for name in selection.listed for word in ("--device", f"{KIND}={name}"))


def _runtime(selection: Selection) -> tuple[str, ...]:
    return "--runtime", "nvidia", "-e", f"NVIDIA_VISIBLE_DEVICES={','.join(selection.listed)}"


def _gpus(selection: Selection) -> tuple[str, ...]:
    """The value is parsed as a line of CSV, so a value with a comma needs its own quotes."""
    if selection.all or selection.count:
        return "--gpus", "all" if selection.all else str(selection.count)
    value = f"device={','.join(selection.devices)}"
    return "--gpus", f'"{value}"' if "," in value else value


_ARGUMENTS = {"cdi": _cdi, "runtime": _runtime, "gpus": _gpus}
