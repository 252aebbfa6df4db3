"""A fleet as SARIF 2.1.0: what a group has in common is a rule, and each of its nodes a result."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gpudoctor.fleet.model import Fleet, Group, Item
from gpudoctor.model import Status
from gpudoctor.plain import plain
from gpudoctor.report.fleet import text
from gpudoctor.report.sarif import PLACE, SCHEMA

_LEVELS = {Status.FAIL: "error", Status.ERROR: "error", Status.WARN: "warning"}


def render(fleet: Fleet) -> str:
    items = {_rule_id(item): item for group in _all(fleet) for item in group.items}
    numbers = {id: number for number, id in enumerate(sorted(items))}
    run = {
        "tool": {"driver": {"name": "gpudoctor", "version": fleet.version, "rules": [_rule(id, items[id]) for id in numbers]}},
        "automationDetails": {"id": "gpudoctor-fleet/"},
        "results": [
            _result(item, node, numbers[_rule_id(item)]) for group in _all(fleet) for item in group.items for node in group.names
        ],
        "properties": {"status": fleet.status.value, "summary": text.headline(fleet)},
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log), indent=1).decode() + "\n"


def _all(fleet: Fleet) -> tuple[Group, ...]:
    return (*fleet.groups, *fleet.common)


def _rule_id(item: Item) -> str:
    return item.id if item.kind == "problem" else f"{item.kind}/{re.sub(r'[^A-Za-z0-9._-]+', '-', item.id)}"


def _rule(id: str, item: Item) -> dict[str, Any]:
    said = plain(item.words) if item.kind == "problem" else f"{item.kind} differs from the majority: {plain(item.id)}"
    return {"id": id, "shortDescription": {"text": said}, "defaultConfiguration": {"level": _LEVELS.get(item.status, "note")}}


def _result(item: Item, node: str, rule: int) -> dict[str, Any]:
    gpus = item.gpus.get(node, ())
    place = "/".join([node, *(["gpu" + ",".join(map(str, gpus))] if gpus else [])])
    return {
        "ruleId": _rule_id(item),
        "ruleIndex": rule,
        "level": _LEVELS.get(item.status, "note"),
        "message": {"text": f"{node}: {plain(item.words)}"},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": PLACE}, "region": {"startLine": 1}},
                "logicalLocations": [{"name": node, "fullyQualifiedName": place, "kind": "resource"}],
            }
        ],
        "partialFingerprints": {"node/v1": f"{_rule_id(item)}:{place}"},
    }
