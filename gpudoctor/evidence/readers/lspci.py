"""`lspci`, with -nn and -k or -v: NVIDIA's PCI functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gpudoctor.evidence.reader import Reader
from gpudoctor.facts.pci import GPU_CLASSES, IORESOURCE_MEM_64
from gpudoctor.model import Reply

_FUNCTION = re.compile(
    r"""
    ^\s*( (?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] )     # its address
    \ ( [A-Z0-9][^:\[]*? ) (?:\ \[([0-9a-f]{4})\])?             # its class, and with -nn the number of that
    :\ (.+)$
    """,
    re.VERBOSE,
)
_CHIP = re.compile(r"NVIDIA Corporation ([A-Z]{2}\d{2}\w+)\b")
_UNNAMED = re.compile(r"NVIDIA Corporation Device ([0-9a-f]{4})\b")
_IDS = re.compile(r"\[(?:([0-9a-f]{4}):)([0-9a-f]{4})\]")
_DETAIL = re.compile(
    r"^\s+( Kernel\ driver\ in\ use | Subsystem | NUMA\ node | LnkCap | LnkSta | IOMMU\ group ):\s*(.*)$",
    re.VERBOSE,
)
_LINK = re.compile(r"Speed ([\d.]+) ?GT/s.*?Width x(\d+)")
_REGION = re.compile(
    r"^\s+(?:Region\ \d:\ )?(?:Memory|I/O\ ports)\ at\ (?P<at> <(?:unassigned|ignored)> | [0-9a-f]+ )\ (?P<kind> \([^)]*\) )?",
    re.VERBOSE,
)
_CLASSES = {"VGA compatible controller": 0x030000, "3D controller": 0x030200, "Display controller": 0x038000}
_OTHERS = {"Audio device": 0x040300, "Bridge": 0x068000, "USB controller": 0x0C0330, "Serial bus controller": 0x0C8000}
# Every complete listing has one of these; output of grep does not.
_WHOLE = re.compile(r" (?:Host bridge|ISA bridge|PCI bridge)\b")

Function = dict[str, Any]


def read(text: str) -> dict[str, Reply] | None:
    """None if the listing is incomplete and contains no GPU of NVIDIA."""
    lines = text.splitlines()
    functions: dict[str, Function] = {}
    others = []
    for head, below in _functions(lines):
        match = _FUNCTION.match(head)
        ids = _IDS.search(match[4]) if match else None
        if match and "NVIDIA" in match[4]:
            functions[_address(match[1])] = _function(match, ids, below)
        elif match and match[2] in _CLASSES and ids:
            others.append(f"{ids[1]}:{ids[2]}")
    if not any(one["class"] >> 8 in GPU_CLASSES for one in functions.values()) and not any(_WHOLE.search(line) for line in lines):
        return None
    return {"pci": Reply("ok", {"functions": functions, "bridges": {}, "other_display": others})}


def details(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Address -> the lines below it."""
    for head, below in _functions(lines):
        match = _FUNCTION.match(head)
        if match:
            yield _address(match[1]), below


def told(below: Sequence[str]) -> Function:
    """The details of a function from -k, -v or -vv."""
    said = {found[1]: found[2] for found in map(_DETAIL.match, below) if found}
    subsystem = _IDS.search(said.get("Subsystem", ""))
    now, most = (_LINK.search(said.get(name, "")) for name in ("LnkSta", "LnkCap"))
    function = {
        "subsystem_vendor": int(subsystem[1], 16) if subsystem else None,
        "subsystem_device": int(subsystem[2], 16) if subsystem else None,
        "numa_node": said.get("NUMA node"),
        **_speed("current", now),
        **_speed("max", most),
        "iommu_group": said.get("IOMMU group"),
    }
    # A device without a driver has other lines below it.
    return {**function, "driver": said.get("Kernel driver in use")} if below else function


def _speed(which: str, link: re.Match[str] | None) -> Function:
    speed = f"{link[1]} GT/s PCIe" if link else None
    return {f"{which}_link_speed": speed, f"{which}_link_width": link[2] if link else None}


def _functions(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    head: str = ""
    below: list[str] = []
    for line in lines:
        if _FUNCTION.match(line):
            if head:
                yield head, below
            head, below = line, []
        elif line.strip():
            below.append(line)
    if head:
        yield head, below


def _address(short: str) -> str:
    return short if short.count(":") == 2 else f"0000:{short}"


def _function(match: re.Match[str], ids: re.Match[str] | None, below: Sequence[str]) -> Function:
    """Without -nn a listing names the chip, or the id of a device that pci.ids does not have."""
    chip = _CHIP.search(match[4])
    unnamed = _UNNAMED.search(match[4])
    return {
        "vendor": 0x10DE,
        "device": int(ids[2] if ids else unnamed[1], 16) if ids or unnamed else None,  # type: ignore[index]
        "chip": chip[1] if chip else "",
        "class": int(match[3], 16) << 8 if match[3] else {**_CLASSES, **_OTHERS}.get(match[2], 0),
        "resource": _resource(below),
        "all_ones": True if "(rev ff)" in match[4] else False if below else None,
        "iommu_group_type": None,
        "virtual_function": False,
        "parents": [],
        **told(below),
    }


def _resource(below: Sequence[str]) -> list[str]:
    """The address regions if one has no address; a 64-bit region takes two places."""
    regions = list(filter(None, map(_REGION.match, below)))
    if not any(region["at"].startswith("<") for region in regions):
        return []
    lines = ["0x0 0x0 0x0"] * 6
    place = 0
    for region in regions:
        is_wide = "64-bit" in region["kind"]
        start = 0 if region["at"].startswith("<") else int(region["at"], 16)
        if place < len(lines):
            lines[place] = f"{start:#x} {start + 1:#x} {IORESOURCE_MEM_64 if is_wide else 0:#x}"
        place += 2 if is_wide else 1
    return lines


READER = Reader(
    kind="lspci",
    anchors=("NVIDIA Corporation", "Host bridge", "00:00.0 "),
    begins=_FUNCTION,
    ends=re.compile(r"^(?!\s)(?!(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] )\S"),
    read=read,
    most_lines=5000,
)
