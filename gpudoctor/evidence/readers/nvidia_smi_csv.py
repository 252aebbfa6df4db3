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
LONGEST_NAME = 8  # words, as in "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"; a sentence has more
_WHO = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id")


def read(text: str) -> dict[str, Reply] | None:
    head, *lines = text.splitlines()
    return replies_of(_names(head), lines) if len(_NAMES.intersection(_names(head))) > 1 else None


def _names(head: str) -> list[str]:
    """The columns without their units."""
    return [re.sub(r" \[[^\]]+\]$", "", name.strip()) for name in head.split(",")]


def replies_of(names: Sequence[str], lines: Sequence[str]) -> dict[str, Reply] | None:
    told = list(rows_of(names, lines))
    gpus = _gpus(told)
    if not gpus:
        return None
    system = nvml_answers.system(told[-1].get("driver_version"), None)
    return nvml_answers.replies(system, [nvml_answers.answers("csv", _renamed(gpu)) for gpu in gpus])


def _renamed(gpu: dict[str, str]) -> dict[str, str]:
    """The names of the single reasons for lower clocks as in the other formats."""
    return {_REASON.sub("clockseventreasons/", name).replace("_", "") if _REASON.match(name) else name: gpu[name] for name in gpu}


_REASON = re.compile(r"clocks_(?:event|throttle)_reasons\.(?!active$|supported$)")


def rows_of(names: Sequence[str], lines: Sequence[str]) -> Iterator[dict[str, str]]:
    """Each row with the names of the last head before it: a file that a loop appends to has many."""
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        head = _names(line)
        if len(_NAMES.intersection(head)) >= 2:
            names = head
        elif names and len(cells) == len(names) and not (len(names) == 1 and len(line.split()) > LONGEST_NAME):
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
        *(" [W]", " [MHz]", "power.limit", "power.default_limit", "clocks.", "name, driver", "index, "),
        *("clocks_throttle_reasons", "pci.bus_id", "index, name", "index, uuid", "name, uuid"),
    ),
    begins=_HEAD,
    ends=re.compile(r"^[^,]*$"),
    read=read,
    most_lines=4000,
)
