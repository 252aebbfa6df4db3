"""The JSON Schema of the JSON report, made from the same dataclasses."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudoctor.model import REPORT_SCHEMA, Report


def schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12. A report always has every field, so every field is required."""
    made = msgspec.json.schema(Report)
    kinds = made["$defs"]
    for name in ("on", "recipe"):
        del kinds["Fix"]["properties"][name]
    kinds["Fix"]["description"] = "One way out: a line to paste, the command that shows it worked, and what takes it back."
    for kind in kinds.values():
        if kind.get("type") == "object":
            kind["required"] = list(kind["properties"])
    verdict = kinds["Report"]["properties"]
    verdict["schema"] = {"const": REPORT_SCHEMA}
    verdict["status"] = {"enum": ["pass", "warn", "fail"]}
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "$id": "urn:gpudoctor:report:1", "title": REPORT_SCHEMA, **made}


def render() -> str:
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"
