"""The lists under each GPU of `nvidia-smi -L` and `nvidia-smi nvlink -s` or `-e`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import nvml_answers
from gpudoctor.model import Reply

_GPU = re.compile(r"^\s*GPU (\d+): (\S.*?) \(UUID: (GPU-[0-9a-fA-F-]+)\)")
_MIG = re.compile(r"^\s*(MIG \S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)")
_SPEED = re.compile(r"^\s*Link (\d+): (?:<(inactive)>|(\d+(?:\.\d+)?) GB/s)\s*$", re.IGNORECASE)
_COUNTER = re.compile(r"^\s*Link (\d+): (Replay|Recovery|CRC) Errors: (\d+)\s*$")
_LINK = re.compile(r"^\s*Link \d+:", re.MULTILINE)
_COUNTERS = {"Replay": "replay", "Recovery": "recovery", "CRC": "crc_flit"}

Gpu = dict[str, Any]


def read(text: str) -> dict[str, Reply] | None:
    gpus: dict[int, Gpu] = {}
    current: Gpu = {}
    for line in text.splitlines():
        match = _GPU.match(line)
        if match:
            current = gpus.setdefault(int(match[1]), {"Name": match[2], "UUID": match[3]})
        else:
            _add(current, line)
    if sorted(gpus) != list(range(len(gpus))) or not gpus:  # with -i it is unclear which GPU is which
        return None
    for gpu in gpus.values():  # -e counts the errors of links, and does not show whether they are up
        links = {link: answers for link, answers in gpu.pop("NvLinks", {}).items() if "State" in answers}
        gpu |= {"NvLinks": links} if links else {}
    listing = [line for line in text.splitlines() if _GPU.match(line) or _MIG.match(line)]
    found = nvml_answers.replies({}, [nvml_answers.tidy(gpus[index].items()) for index in range(len(gpus))])
    if _LINK.search(text):
        return found
    return {**found, "command:nvidia-smi -L": _command(listing)}


def _add(gpu: Gpu, line: str) -> None:
    if match := _MIG.match(line):
        gpu.setdefault("MigDevices", []).append({"Name": match[1], "UUID": match[3]})
    elif match := _SPEED.match(line):
        link = gpu.setdefault("NvLinks", {}).setdefault(match[1], {})
        link["State"] = 0 if match[2] else 1
        if match[3]:
            link["FieldValues"] = {"NVLINK_GET_SPEED": int(1000 * float(match[3]))}
    elif match := _COUNTER.match(line):
        link = gpu.setdefault("NvLinks", {}).setdefault(match[1], {})
        link.setdefault("ErrorCounter", {})[_COUNTERS[match[2]]] = int(match[3])


def _command(listing: Sequence[str]) -> Reply:
    return Reply("ok", {"code": 0, "out": "".join(f"{line}\n" for line in listing), "err": ""})


READER = Reader(
    kind="nvidia-smi -L",
    anchors=("(UUID: GPU-",),
    begins=_GPU,
    ends=re.compile(r"^\s*(?!GPU \d|MIG |Link \d|\s)\S"),
    read=read,
    most_lines=4000,
)
