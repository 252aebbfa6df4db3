"""`nvidia-smi -q`, complete or with -d: fields under headings, by indentation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import nvml_answers
from gpudoctor.evidence.readers.nvidia_smi_fields import plain
from gpudoctor.model import Reply

_GPU = re.compile(r"^(\s*)GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
# From R610 on: KMD (kernel-mode driver) and CUDA UMD (user-mode driver).
_TOP = ("driverversion", "kmdversion", "cudaversion", "cudaumdversion", "attachedgpus")
# A line that is not from nvidia-smi: a prompt, a rule, a table, prose longer than a name.
_ELSE = re.compile(r"^(?:[+|=_`~#>-]{3,}|```|[\w.@-]+[:@~][^:]*[$#] |\*\*\* )|^\S.*[.!?]$")


class Field(NamedTuple):
    path: str
    text: str


def read(text: str) -> dict[str, Reply] | None:
    latest = text[max(text.rfind("==NVSMI LOG=="), 0) :]  # the last of several, as printed with -l
    parts = list(_parts(latest.splitlines()))
    top = {field.path: field.text for field in _fields(parts[0][1]) if field.path in _TOP}
    gpus = [of_gpu(lines, address) for address, lines in parts[1:]]
    system = nvml_answers.system(
        top.get("kmdversion", top.get("driverversion")), top.get("cudaumdversion", top.get("cudaversion"))
    )
    if not system and not gpus:
        return None
    return nvml_answers.replies(system, gpus or ([] if top.get("attachedgpus") == "0" else None))


def _parts(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The lines before the first GPU, then each GPU's with its address."""
    address: str = ""
    part: list[str] = []
    for line in lines:
        match = _GPU.match(line)
        if match:
            yield address, part
            address, part = match[2], []
        else:
            part.append(line)
    yield address, part


def of_gpu(lines: Sequence[str], address: str = "") -> nvml_answers.Answers:
    """The answers in the lines of one GPU; its address is unknown if only a section is shown."""
    fields = list(_fields(lines))
    said = {"pci/busid": address} if address else {}
    for field in fields:
        if not (address and field.path == "pci/busid"):
            said.setdefault(field.path, field.text)
    found = nvml_answers.answers("q", said)
    if "processes" in said or any(field.path.startswith("processes/") for field in fields):
        found |= nvml_answers.processes(_processes(fields))
    if "migdevices" in said or any(field.path.startswith("migdevice") for field in fields):
        found["MigDevices"] = list(_mig_devices(fields))
    licence = _licence(said)
    return {**found, "GridLicensableFeatures": licence} if licence else found


def _fields(lines: Sequence[str]) -> Iterator[Field]:
    """Every line with the path that results from its indentation; a heading has no text."""
    above: list[tuple[int, str]] = []
    for line in lines:
        line = line.expandtabs(4).rstrip()
        said = line.lstrip()
        if not said:
            continue
        indent, colon = len(line) - len(said), said.find(":", 1)
        name = plain(said[:colon].rstrip() if colon > 0 else said)
        while above and above[-1][0] >= indent:
            above.pop()
        path = "/".join((*(heading for _, heading in above), name))
        above.append((indent, name))  # a few fields have others below them: HW Slowdown, Process ID
        if colon > 0:
            yield Field(path, said[colon + 1 :].removeprefix(" "))


def _processes(fields: Sequence[Field]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    names = {"type": "type", "name": "name", "usedgpumemory": "used"}
    for path, text in fields:
        if not path.startswith("processes/"):
            continue
        name = path.rsplit("/", 1)[-1]
        if name == "processid":
            found.append({"pid": text})
        elif found and name in names:
            found[-1][names[name]] = text
    return found


def _mig_devices(fields: Sequence[Field]) -> Iterator[nvml_answers.Answers]:
    """MIG devices without name and UUID, which only -L shows."""
    found: list[dict[str, str]] = []
    for path, text in fields:
        heading, _, name = path.partition("/")
        if heading == "migdevice" and name == "index":
            found.append({})
        elif heading == "migdevice" and found:
            found[-1].setdefault(name, text)
    for device in found:
        yield nvml_answers.mig_device(
            device.get("gpuinstanceid", ""), device.get("computeinstanceid", ""), device.get("fbmemoryusage/total", "")
        )


def _licence(said: dict[str, str]) -> nvml_answers.Answers | None:
    for heading in ("vgpusoftwarelicensedproduct", "gridlicensedproduct"):
        if f"{heading}/licensestatus" in said:
            return nvml_answers.licence(said.get(f"{heading}/productname", ""), said[f"{heading}/licensestatus"])
    return None


READER = Reader(
    kind="nvidia-smi -q",
    anchors=("==NVSMI LOG==", "Attached GPUs", "GPU 00000000:"),
    begins=re.compile(rf"={{4,}}NVSMI LOG={{4,}}|^\s*Attached GPUs\s+: \d+\s*$|{_GPU.pattern}"),
    ends=_ELSE,
    read=read,
)
