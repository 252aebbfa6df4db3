"""This machine as seen by an image: driver, GPUs, processor. Read from files, in milliseconds, without calling the driver."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpudoctor import knowledge
from gpudoctor.containers.engine import gpus
from gpudoctor.knowledge import cuda

Pair = tuple[int, int]
Segment = Literal["data centre", "workstation", "consumer", "integrated (SoC)"]
# Name of a processor in engines and Python -> in images: https://go.dev/doc/install/source#environment
PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i386": "386", "i686": "386"}

# The start of the GPU's name without "NVIDIA " -> its brand in NVML. Newer drivers use the more specific names.
_BRANDS = (
    ("geforce rtx", ("geforcertx", "geforce")),
    ("geforce", ("geforce",)),
    ("titan rtx", ("titanrtx", "titan")),
    ("titan", ("titan",)),
    ("quadro rtx", ("quadrortx", "quadro")),
    ("quadro", ("quadro",)),
    ("nvs", ("nvs",)),
    ("rtx", ("nvidiartx", "quadrortx")),
)


@dataclass(frozen=True)
class Card:
    """A GPU. compute_capabilities: several if only the generation is known, empty if not even that is known."""

    name: str
    compute_capabilities: tuple[Pair, ...] = ()
    segment: Segment | None = None

    @property
    def brands(self) -> tuple[str, ...]:
        """Possible names of its brand in NVML; empty if unknown."""
        plain = self.name.casefold().removeprefix("nvidia ")
        known = next((brands for start, brands in _BRANDS if plain.startswith(start)), ())
        return known or (("tesla", "nvidia") if self.segment == "data centre" else ())

    @property
    def forward_compatible(self) -> bool | None:
        """Whether NVIDIA supports forward compatibility on it; None if unknown, as for RTX workstation cards,
        of which NVIDIA lists only some.

        https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
        """
        if self.segment == "data centre":
            return True
        is_rtx_workstation = bool({"nvidiartx", "quadrortx"}.intersection(self.brands))
        return False if self.segment == "consumer" or (self.brands and not is_rtx_workstation) else None


@dataclass(frozen=True)
class ThisMachine:
    """driver: version of the loaded kernel module, on WSL that of the Windows driver; None if not loaded or unknown."""

    driver: str | None = None
    gpus: tuple[Card, ...] = ()
    processor: str = "amd64"
    is_wsl: bool = False


def this_machine(root: Path = Path("/")) -> ThisMachine:
    is_wsl = (root / "dev/dxg").exists()
    processor = platform.machine()
    return ThisMachine(
        driver=_windows_driver(root) if is_wsl else _driver(root),
        gpus=tuple(_cards(root)),
        processor=PROCESSORS.get(processor, processor),
        is_wsl=is_wsl,
    )


def _driver(root: Path) -> str | None:
    version = re.search(r"Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)\b", _text(root / "proc/driver/nvidia/version"))
    return version[1] if version else _text(root / "sys/module/nvidia/version") or None


def _windows_driver(root: Path) -> str | None:
    """531.79 from the line `DriverVer = 05/03/2023, 31.0.15.3179` in the driver's .inf, the newest of several."""
    found = []
    for path in (root / "usr/lib/wsl/drivers").glob("nv*.inf_*/nv*.inf"):
        text = _bytes(path).replace(b"\0", b"")  # Windows writes UTF-16
        if match := re.search(rb"(?i)DriverVer\s*=\s*[\d/]+\s*,\s*\d+\.\d+\.(\d+)\.(\d+)", text):
            digits = (match[1] + match[2].zfill(4)).decode()[-5:]
            found.append(f"{digits[:3]}.{digits[3:]}")
    return max(found, default=None)


def _cards(root: Path) -> Iterator[Card]:
    for device in gpus.on_pci(root):
        model = re.search(r"(?m)^Model:\s*(.+?)\s*$", _text(root / f"proc/driver/nvidia/gpus/{device.name}/information"))
        yield card(int(_text(device / "device") or "0", 16), model[1] if model else "")


def card(device_id: int, model: str = "") -> Card:
    """The GPU with a PCI device id; `model`, the driver's name for it, decides between boards that share an id."""
    boards = knowledge.gpus_by_device_id(device_id)
    named = knowledge.gpu_by_name(model) if model else None
    if named and (not boards or named in boards):
        boards = (named,)
    if boards:
        capabilities = tuple(dict.fromkeys(board.compute_capability for board in boards))
        segments = {board.segment for board in boards}
        name = model or " or ".join(board.name for board in boards)
        return Card(name, capabilities, segments.pop() if len(segments) == 1 else None)
    generation = knowledge.architecture_of_device(device_id)
    name = model or (f"NVIDIA {generation} GPU" if generation else f"NVIDIA GPU 10de:{device_id:04x}")
    return Card(name, tuple(_capabilities(generation)))


def _capabilities(generation: str | None) -> Iterator[Pair]:
    for row in cuda.table().architectures:
        if row.name == generation and row.variant != "integrated":
            yield row.compute_capability


def _text(path: Path) -> str:
    return _bytes(path).decode(errors="replace").strip()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
