"""`kubectl describe node` and `kubectl get node -o yaml`: how many GPUs a node offers."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_PART = re.compile(r"^\s*(Capacity|Allocatable|capacity|allocatable):\s*$")
_ROW = re.compile(r"^\s+([\w./-]+):\s+\"?([\w.]+)\"?\s*$")
_GPU = re.compile(r"nvidia\.com/(?:gpu|mig-\S+)")


def read(text: str) -> dict[str, Reply] | None:
    """None for another Capacity, such as a volume's."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in text.splitlines():
        if part := _PART.match(line):
            current = found.setdefault(part[1].lower(), {})
        elif row := _ROW.match(line):
            current[row[1]] = row[2]
    if not all("pods" in part for part in found.values()):
        return None
    offered = {
        name: sum(int(count) for key, count in part.items() if _GPU.fullmatch(key) and count.isdigit())
        for name, part in found.items()
    }
    return {"kubernetes-node": Reply("ok", offered)}


READER = Reader(
    kind="a node of Kubernetes",
    anchors=("Capacity:", "Allocatable:", "allocatable:", "capacity:"),
    begins=_PART,
    ends=re.compile(r"^(?!\s|Allocatable:|Capacity:)\S"),
    read=read,
    most_lines=60,
)
