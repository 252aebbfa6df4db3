"""The network adapters for RDMA: their driver, firmware, place, and what each port has counted since the driver was loaded."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from gpudoctor.facts.replies import Replies
from gpudoctor.model import Unavailable

FOLDER = "/sys/class/infiniband"
COUNTERS = (
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)


@dataclass(frozen=True)
class Adapter:
    """driver: the kernel's, as mlx5_core or efa. address: its PCI address. counters: port -> counter -> value.

    A counter that the adapter does not have is left out; None and "" are what could not be read.
    """

    name: str
    driver: str
    address: str
    firmware: str
    model: str
    numa_node: int | None
    counters: dict[int, dict[str, int]]


def adapters(replies: Replies) -> tuple[Adapter, ...]:
    """Every adapter in /sys/class/infiniband; Unavailable if they were not looked at."""
    paths = replies.value(f"glob:{FOLDER}/*/device/uevent")
    return tuple(_adapter(replies, path.split("/")[4]) for path in paths)


def _adapter(replies: Replies, name: str) -> Adapter:
    folder = f"{FOLDER}/{name}"
    event = dict(line.split("=", 1) for line in _text(replies, f"{folder}/device/uevent").splitlines() if "=" in line)
    node = _number(_text(replies, f"{folder}/device/numa_node"))
    return Adapter(
        name,
        event.get("DRIVER", ""),
        event.get("PCI_SLOT_NAME", ""),
        _text(replies, f"{folder}/fw_ver"),
        _text(replies, f"{folder}/board_id"),
        node if node is not None and node >= 0 else None,
        _counters(replies, folder),
    )


def _counters(replies: Replies, folder: str) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for counter in COUNTERS:
        with contextlib.suppress(Unavailable):
            for path in replies.value(f"glob:{FOLDER}/*/ports/*/counters/{counter}"):
                value = _number(_text(replies, path)) if path.startswith(folder + "/") else None
                if value is not None:
                    found.setdefault(int(path.split("/")[6]), {})[counter] = value
    return found


def _text(replies: Replies, path: str) -> str:
    try:
        return (replies.file(path) or "").strip()
    except Unavailable:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() else None
