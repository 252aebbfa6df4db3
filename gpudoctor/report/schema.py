"""The JSON Schemas of published formats, made from the dataclasses."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudoctor.model import REPORT_SCHEMA, Report
from gpudoctor.report.json import CHOICE, INTERNAL

_FIX = "A fix: the command to paste, the command that verifies it, and its undo."
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema of the JSON report, draft 2020-12. A report always has every field, so every field is required."""
    made = msgspec.json.schema(Report)
    kinds = made["$defs"]
    for name in (*CHOICE, *INTERNAL):
        del kinds["Fix"]["properties"][name]
    kinds["Fix"]["description"] = _FIX
    verdict = kinds["Report"]["properties"]
    verdict["schema"] = {"const": REPORT_SCHEMA}
    verdict["status"] = {"enum": ["pass", "skip", "warn", "fail"]}
    return _published(REPORT_SCHEMA, made)


def of_difference() -> dict[str, Any]:
    """The schema of `gpudoctor diff --format json`."""
    from gpudoctor.comparing import Comparison
    from gpudoctor.report.compared import SCHEMA

    made = msgspec.json.schema(Comparison)
    fix = made["$defs"]["Fix"]
    fix["description"] = _FIX
    for internal in INTERNAL:
        del fix["properties"][internal]
    compared = made["$defs"]["Comparison"]
    name = {"type": "string", "description": "What the file is called."}
    compared["properties"] = {"schema": {"const": SCHEMA}, "a": name, "b": name, **compared["properties"]}
    return _published(SCHEMA, made)


def of_manifest() -> dict[str, Any]:
    """The schema of manifest.json in a bundle."""
    from gpudoctor.files.bundle import SCHEMA

    text, number = {"type": "string"}, {"type": "number"}
    row = {
        "file": {"type": ["string", "null"], "description": "Relative to the manifest; null if no reply was kept."},
        "bytes": {"type": "integer"},
        "sha256": text,
        "left_out": {**text, "description": "Why the reply is not in a separate file."},
        "asked": {**text, "description": "The question, as the snapshot names it."},
        "status": text,
        "exit": {"type": ["integer", "null"]},
        "seconds": number,
        "detail": text,
    }
    files = {"type": "array", "items": {"$ref": "#/$defs/File"}}
    kinds = {
        "Manifest": {"type": "object", "properties": {"schema": {"const": SCHEMA}, "files": files}},
        "File": {"type": "object", "properties": row},
    }
    made = _published(SCHEMA, {"$ref": "#/$defs/Manifest", "$defs": kinds})
    kinds["File"]["required"] = ["file"]
    return made


def of_expectation() -> dict[str, Any]:
    """The schema of a file for `gpudoctor check --expect FILE`. Only `schema` has to be there."""
    from gpudoctor.knowledge.expectations import SCHEMA, Expectation

    return _named(SCHEMA, msgspec.json.schema(Expectation))


def of_fleet() -> dict[str, Any]:
    """The schema of `gpudoctor fleet check|merge --format json`."""
    from gpudoctor.fleet.model import SCHEMA
    from gpudoctor.report.fleet import json

    return _published(SCHEMA, json.schema())


def of_collective() -> dict[str, Any]:
    """The schema of `gpudoctor fleet collective --format json`."""
    from gpudoctor.report.fleet import collective

    return _published(collective.SCHEMA, collective.schema())


SCHEMAS = {
    "report": schema,
    "diff": of_difference,
    "bundle": of_manifest,
    "expectation": of_expectation,
    "fleet": of_fleet,
    "collective": of_collective,
}


def _published(name: str, made: dict[str, Any]) -> dict[str, Any]:
    for kind in made["$defs"].values():
        if kind.get("type") == "object":
            kind["required"] = list(kind["properties"])
    return _named(name, made)


def _named(name: str, made: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": _DIALECT, "$id": f"urn:{name.replace('.', ':').replace('/', ':')}", "title": name, **made}


def render(of: str = "report") -> str:
    return msgspec.json.format(msgspec.json.encode(SCHEMAS[of]()), indent=2).decode() + "\n"
