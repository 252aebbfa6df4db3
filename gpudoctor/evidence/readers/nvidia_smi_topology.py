"""The matrix of `nvidia-smi topo -m`, and of `nvidia-smi topo -p2p r`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import cpu_lists
from gpudoctor.model import Reply

# https://docs.nvidia.com/deploy/nvidia-smi/index.html: what a path crosses, and why there is no peer access
TOPOLOGY = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
P2P = {"OK": 0, "CNS": 1, "GNS": 2, "TNS": 3, "DR": 4, "NS": 5, "U": 6}
_HEAD = re.compile(r"^\s*GPU0\s+(?:GPU1\b|NIC\d|mlx|CPU Affinity)")
_ROW = re.compile(r"^\s*GPU(\d+)\s+(\S.*)$")


def read(text: str) -> dict[str, Reply] | None:
    head, *rows = text.splitlines()
    near = _near_cpus(head, rows)
    found = {**(_peers(head, rows) or {}), **({"shown-near-cpus": Reply("ok", near)} if near else {})}
    return found or None


def _near_cpus(head: str, rows: list[str]) -> dict[str, dict[str, Any]]:
    """The columns CPU Affinity and NUMA Affinity, which are separated by tabs or by several spaces."""
    names = _cells_of(head)
    if "CPU Affinity" not in names:
        return {}
    place = names.index("CPU Affinity") + 1  # the head has no name for the first column
    found = {}
    for cells in map(_cells_of, rows):
        gpu, cpus = re.fullmatch(r"GPU(\d+)", cells[0]), cpu_lists.numbers(cells[place]) if len(cells) > place else []
        if gpu and cpus:
            node = cells[place + 1] if len(cells) > place + 1 else ""
            found[gpu[1]] = {"cpus": cpus, "node": int(node) if node.isdigit() else None}
    return found


def _cells_of(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"\t+|\s{2,}", row.strip())]


def _peers(head: str, rows: list[str]) -> dict[str, Reply] | None:
    count = len(re.findall(r"\bGPU\d+\b", head))
    if count == 1:
        return {"nvml:peers": Reply("ok", {"topology": {}, "p2p": {}})}
    cells = {pair: word for row in rows for pair, word in _cells(row, count)}
    topology = {pair: TOPOLOGY[word] for pair, word in cells.items() if word in TOPOLOGY and _is_upper(pair)}
    access = {pair: P2P[word] for pair, word in cells.items() if word in P2P}
    # A pair with NVLink (NV18) does not show the PCIe path between the two.
    known = {name: pairs for name, pairs in (("topology", topology), ("p2p", access)) if len(pairs) == len(cells) / _PARTS[name]}
    return {"nvml:peers": Reply("ok", known)} if cells and known else None


_PARTS = {"topology": 2, "p2p": 1}  # the matrix lists each pair twice


def _cells(row: str, count: int) -> Iterator[tuple[str, str]]:
    match = _ROW.match(row)
    words = match[2].split()[:count] if match else []
    for column, word in enumerate(words):
        if match and int(match[1]) != column:
            yield f"{match[1]},{column}", word


def _is_upper(pair: str) -> bool:
    one, other = map(int, pair.split(","))
    return one < other


READER = Reader(
    kind="nvidia-smi topo",
    anchors=("GPU0\tGPU1", "GPU0 ", "GPU0\tNIC", "GPU0\tmlx", "GPU0\tCPU Affinity"),
    begins=_HEAD,
    ends=re.compile(r"^\s*(?!GPU\d|NIC\d|mlx|CPU\d)\S|^\s*$"),
    read=read,
    most_lines=200,
)
