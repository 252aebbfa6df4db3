"""`kubectl describe node`, `describe pod` and `get -o yaml`: the GPUs that a node offers, and those that a pod requests."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_PART = re.compile(r"^\s*(Capacity|Allocatable|capacity|allocatable):\s*$")
_ROW = re.compile(r"^\s+([\w./-]+):\s+\"?([\w.]+)\"?\s*(?:#.*)?$")
_GPU = re.compile(r"nvidia\.com/(?:gpu|mig-\S+)")
_OF_NODE = re.compile(r"nvidia\.com/(?!gpu\.)\S+")
_WANTED = re.compile(r"^\s*(?:Limits|Requests|limits|requests):\s*$")


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
    named = _counts(found.get("allocatable") or found.get("capacity") or {})
    return {"kubernetes-node": Reply("ok", offered), "shown-offered": Reply("ok", named)}


def _counts(part: dict[str, str]) -> dict[str, int]:
    return {name: int(count) for name, count in part.items() if _OF_NODE.fullmatch(name) and count.isdigit()}


def _pod(text: str) -> dict[str, Reply] | None:
    rows = {row[1]: row[2] for row in map(_ROW.match, text.splitlines()) if row}
    wanted = _counts(rows)
    return {"shown-wanted": Reply("ok", wanted)} if wanted else None


def _filtered(text: str) -> dict[str, Reply] | None:
    """`kubectl describe node | grep nvidia.com/`: the labels, then capacity, allocatable and what pods have."""
    rows = [row for row in map(_ROW.match, text.splitlines()) if row]
    named = _counts({row[1]: row[2] for row in rows})
    return {"shown-offered": Reply("ok", named)} if named and len(rows) > len(named) else None


READERS = (
    Reader(
        kind="a node of Kubernetes",
        anchors=("Capacity:", "Allocatable:", "allocatable:", "capacity:"),
        begins=_PART,
        ends=re.compile(r"^(?!\s|Allocatable:|Capacity:)\S"),
        read=read,
        most_lines=60,
    ),
    Reader(
        kind="what a pod requests",
        anchors=("Limits:", "limits:", "Requests:", "requests:"),
        begins=_WANTED,
        ends=re.compile(r"^(?!\s*[\w./-]+:\s+\"?[\w.]+\"?\s*(?:#.*)?$)"),
        read=_pod,
        most_lines=20,
    ),
    Reader(
        kind="what a node of Kubernetes offers",
        anchors=("nvidia.com/",),
        begins=re.compile(r"^\s{2}nvidia\.com/(?:gpu|mig-\S+):\s+\d+\s*$"),
        ends=re.compile(r"^(?!\s+nvidia\.com/\S+:\s+\d+\s*$)"),
        read=_filtered,
        most_lines=60,
        alone=True,
    ),
)
