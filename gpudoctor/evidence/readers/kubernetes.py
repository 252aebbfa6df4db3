"""`kubectl describe node`, `describe pod`, `get -o yaml` and `get pods`: what nodes offer, and what pods request."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_PART = re.compile(r"^\s*(Capacity|Allocatable|capacity|allocatable):\s*$")
_ROW = re.compile(r"^\s+([\w./-]+):\s+\"?([\w.]+)\"?\s*(?:#.*)?$")
_GPU = re.compile(r"nvidia\.com/(?:gpu(?:\.shared)?|mig-\S+)")
_OF_NODE = re.compile(r"nvidia\.com/(?:gpu(?:\.shared)?|mig-\S+)")
_POD = re.compile(
    r"""
    ^\s*(?:\S+\s+)?(?:pod/)?(?P<name>[a-z][\w.-]*-[\w-]+)
    \s+\d+/\d+\s+(?P<status>[A-Z][\w:/]+)\s+\d+
    """,
    re.VERBOSE,
)
_SHELL = re.compile(
    r"""
    (?:^|[\s$\#>])(?:kubectl|oc|k)\s[^\n]{0,200}
    \b(?: exec\b[^\n]{0,200}?\b(?:bash|sh) | rsh\s+\S+ )\s*$
    """,
    re.VERBOSE,
)
_JSON = re.compile(r"\"(nvidia\.com/[\w.-]+)\":\s*\"?(\d+)\"?")
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


def _pods(text: str) -> dict[str, Reply] | None:
    """NVIDIA's pods and their states."""
    rows = [match for match in map(_POD.match, text.splitlines()) if match]
    found = {match["name"]: match["status"] for match in rows if re.search(r"nvidia|gpu-", match["name"])}
    return {"shown-pods": Reply("ok", found)} if found else None


def _json(text: str) -> dict[str, Reply] | None:
    """The resources of a pod on one line of JSON."""
    wanted = _counts(dict(_JSON.findall(text)))
    return {"shown-wanted": Reply("ok", wanted)} if wanted else None


def _inside(text: str) -> dict[str, Reply]:
    """The commands after it run in a pod."""
    return {"prompt-of-container": Reply("ok", "kubernetes")}


def _filtered(text: str) -> dict[str, Reply] | None:
    """`kubectl describe node | grep nvidia.com/`: the labels, then capacity, allocatable and what pods have."""
    rows = [row for row in map(_ROW.match, text.splitlines()) if row]
    named = _counts({row[1]: row[2] for row in rows})
    return {"shown-offered": Reply("ok", named)} if named and len(rows) > len(named) else None


def _allocated(text: str) -> dict[str, Reply] | None:
    """What the pods of a node have requested already."""
    found = {match[1]: int(match[2]) for match in _REQUESTED.finditer(text)}
    return {"shown-allocated": Reply("ok", found)} if found else None


_REQUESTED = re.compile(r"(?m)^\s+(nvidia\.com/(?:gpu|mig-\S+))\s+(\d+)\s+\d+\s*$")
READERS = (
    Reader(
        kind="what the pods of a node request",
        anchors=("Allocated resources:",),
        begins=re.compile(r"^\s*Allocated resources:\s*$"),
        ends=re.compile(r"^(?!\s)\S"),
        read=_allocated,
        most_lines=20,
    ),
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
        kind="a shell in a pod",
        anchors=("kubectl exec", "oc rsh", "k exec"),
        begins=_SHELL,
        ends=re.compile(""),
        read=_inside,
        most_lines=1,
    ),
    Reader(
        kind="resources of a pod",
        anchors=('"limits":{', '"limits": {', '"requests":{'),
        begins=re.compile(r'"(?:limits|requests)":\s*\{[^}]*"nvidia\.com/'),
        ends=re.compile(""),
        read=_json,
        most_lines=1,
    ),
    Reader(
        kind="pods of Kubernetes",
        anchors=(
            "READY   STATUS",
            "READY     STATUS",
            "nvidia-driver-daemonset",
            "nvidia-device-plugin",
            "nvidia-operator-validator",
        ),
        begins=re.compile(r"^\s*(?:NAMESPACE +)?NAME +READY +STATUS|^\s*(?:\S+ +)?\S+ +\d+/\d+ +[A-Z]\S+ +\d"),
        ends=re.compile(r"^\s*$|^```|^\S*[$#] "),
        read=_pods,
        most_lines=400,
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
