"""Verdicts of other programs on GPU nodes: NodeVerdict of NVIDIA Health Validation, and health events of NVSentinel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_MOST = 2000  # results
_OVERALL = re.compile(r'"overall_severity"\s*:\s*"(PASS|INFO|WARNING|CRITICAL|UNKNOWN)"')
_COMPONENT = re.compile(r'"check_ids"\s*:')
_STATUS = {"PASS": "pass", "INFO": "pass", "WARNING": "warn", "CRITICAL": "fail", "UNKNOWN": "unknown"}
_DEVICE = re.compile(r"(?i)GPU-[0-9a-f]{8}-|gpu[-_: ]?\d{1,2}$|nvlink|mlx\d|[0-9a-f]{4,8}:[0-9a-f]{2}:")
_EVENT = re.compile(r'"checkName"\s*:')
_CONDITION = re.compile(r"(?:ErrorCode:\S+ )+(?:[^;\n]*? )?Recommended Action=[A-Z_]+;")
_CHECK = re.compile(r"\b(\w+)IsNotHealthy\b")
_ACTIONS = {  # data-models/protobufs/health_event.proto
    0: "NONE",
    2: "COMPONENT_RESET",
    5: "CONTACT_SUPPORT",
    6: "RUN_FIELDDIAG",
    15: "RESTART_VM",
    24: "RESTART_BM",
    25: "REPLACE_VM",
    26: "RUN_DCGMEUD",
    39: "RESTART_APP",
}


def health_validation(text: str) -> dict[str, Reply] | None:
    """`node-tests`: one record per component that did not pass; one that passed if there is none. Names of nodes are left out."""
    overall = _OVERALL.search(text)
    if not overall:
        return None
    results = [
        {
            "test": ", ".join(_texts(part.get("check_ids"))),
            "category": str(part.get("category") or ""),
            "status": _STATUS[str(part["max_severity"])],
            "gpu": None,
            "words": [name for name in _texts(part.get("entities")) if _DEVICE.match(name)],
        }
        for part in _objects(_COMPONENT, text)
        if part.get("max_severity") in _STATUS
    ]
    if not results:
        results = [{"test": "node", "category": "", "status": _STATUS[overall[1]], "gpu": None, "words": []}]
    return _reply("NVIDIA Health Validation", results)


def events(text: str) -> dict[str, Reply] | None:
    """Events as JSON, of its API or an exporter."""
    found = [event for event in _objects(_EVENT, text) if {"recommendedAction", "entitiesImpacted"} & set(event)]
    return _reply("NVSentinel", [_event(event) for event in found]) if found else None


def _event(event: dict[str, Any]) -> dict[str, Any]:
    node, said = event.get("nodeName"), str(event.get("message") or "")
    if isinstance(node, str) and node:
        said = said.replace(node, "this node")
    action = event.get("recommendedAction", 0)
    action = _ACTIONS.get(action, "UNKNOWN") if isinstance(action, int) else str(action)
    impacted = [one for one in event.get("entitiesImpacted") or () if isinstance(one, dict)]
    gpus = [str(one.get("entityValue")) for one in impacted if one.get("entityType") == "GPU"]
    fatal = "fail" if event.get("isFatal") is True else "warn"
    return {
        "test": str(event["checkName"]),
        "category": str(event.get("componentClass") or ""),
        "status": "pass" if event.get("isHealthy") is True else fatal,
        "gpu": _number(gpus[0]) if len(gpus) == 1 else None,
        "words": _words(_texts(event.get("errorCode")), said, action),
    }


def conditions(text: str) -> dict[str, Reply] | None:
    """Conditions and events of a node, in the output of kubectl. A condition has the status True; an event has no status."""
    results = []
    for line in text.splitlines():
        check = _CHECK.search(line)
        for said in _CONDITION.findall(line):
            codes = re.findall(r"ErrorCode:(\S+)", said)
            rest, _, action = re.sub(r"ErrorCode:\S+ ", "", said).rpartition("Recommended Action=")
            gpu = re.search(r"\bGPU:(\d{1,3})\b", rest)
            is_condition = bool(re.search(r"\bTrue\b", line))
            results.append(
                {
                    "test": check[1] if check else codes[0],
                    "category": "",
                    "status": "fail" if is_condition or action != "NONE;" else "warn",
                    "gpu": _number(gpu[1]) if gpu else None,
                    "words": _words(codes, re.sub(r"\b[A-Z_]+:\S+ ", "", rest), action.rstrip(";")),
                }
            )
    return _reply("NVSentinel", results) if results else None


def _words(codes: list[str], said: str, action: str) -> list[str]:
    told = " ".join(filter(None, [", ".join(codes), said.strip()]))
    return [*filter(None, [told]), *([f"recommended action {action}"] if action not in ("NONE", "UNKNOWN", "") else [])]


def _objects(begins: re.Pattern[str], text: str) -> Iterator[dict[str, Any]]:
    """The rest of each object that has such a key: from that key on."""
    decoder = json.JSONDecoder()
    for match in begins.finditer(text):
        try:
            found, _ = decoder.raw_decode("{" + text[match.start() : match.start() + 100_000])
        except (ValueError, RecursionError):
            continue
        yield found


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,3}", text) else None


def _reply(tool: str, results: list[dict[str, Any]]) -> dict[str, Reply]:
    return {"node-tests": Reply("ok", {"tool": tool, "version": "", "results": results[:_MOST]})}


READERS = (
    Reader(
        "NodeVerdict of NVIDIA Health Validation",
        ('"overall_severity"', '"check_ids"'),
        re.compile(rf"{_OVERALL.pattern}|{_COMPONENT.pattern}"),
        health_validation,
    ),
    Reader("health events of NVSentinel", ('"checkName"',), _EVENT, events),
    Reader("node conditions of NVSentinel", ("Recommended Action=",), _CONDITION, conditions, once=True),
)
