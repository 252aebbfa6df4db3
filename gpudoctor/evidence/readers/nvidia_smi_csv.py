"""`nvidia-smi --query-gpu=... --format=csv`, with its header line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import nvml_answers
from gpudoctor.evidence.readers.nvidia_smi_fields import rows
from gpudoctor.model import Reply

_NAMES = {name for row in rows("csv") for names in row.names for name in names} | {
    "index",
    "driver_version",
    "timestamp",
    "count",
}
_HEAD = re.compile(r"^\s*[a-z][a-z0-9_.]+(?: \[[^\]]+\])?(?:, ?[a-z][a-z0-9_.]+(?: \[[^\]]+\])?)+\s*$")
_WHO = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id")


def read(text: str) -> dict[str, Reply] | None:
    told = list(_rows(text.splitlines()))
    gpus = _gpus(told)
    if not gpus:
        return None
    system = nvml_answers.system(told[-1].get("driver_version"), None)
    return nvml_answers.replies(system, [nvml_answers.answers("csv", gpu) for gpu in gpus])


def _rows(lines: Sequence[str]) -> Iterator[dict[str, str]]:
    """Each row with the names of the last head before it: a file that a loop appends to has many."""
    names: list[str] = []
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        head = [re.sub(r" \[[^\]]+\]$", "", cell) for cell in cells]
        if len(_NAMES.intersection(head)) >= 2:
            names = head
        elif names and len(cells) == len(names):
            yield dict(zip(names, cells, strict=True))


def _gpus(told: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Each GPU's latest row in the order of their indices; empty if it is not clear which row belongs to which GPU."""
    who = next((name for name in _WHO if told and name in told[0]), None)
    if who is None:
        return [] if told and "timestamp" in told[0] else list(told)
    latest: dict[str, dict[str, str]] = {}
    for row in told:
        if who in row:
            latest[row[who]] = {**latest.get(row[who], {}), **row}
    if who != "index":
        return list(latest.values())
    indices = sorted(latest, key=lambda index: int(index) if index.isdigit() else -1)
    return [latest[index] for index in indices] if indices == [str(number) for number in range(len(indices))] else []


READER = Reader(
    kind="nvidia-smi --query-gpu",
    anchors=(
        *("utilization.gpu", "memory.total", "memory.used", "driver_version", "temperature.gpu", "power.draw", "compute_cap,"),
        *("compute_cap\n", "remapped_rows.", "retired_pages.", "ecc.errors.", "pcie.link.", "mig.mode.", "clocks_event_reasons"),
        *("clocks_throttle_reasons", "pci.bus_id", "index, name", "index, uuid", "name, uuid"),
    ),
    begins=_HEAD,
    ends=re.compile(r"^[^,]*$"),
    read=read,
    most_lines=4000,
)
