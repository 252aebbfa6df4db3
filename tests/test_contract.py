"""What docs/json.md promises of gpudoctor.report/1, against the schema as it was published first."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.report.schema import schema

FIRST = json.loads((Path(__file__).parent / "schemas" / "report-1.json").read_text())
CLOSED = ("Status", "Action", "Confidence")  # whose values are all that there will be
SAME = ("type", "$ref", "const", "anyOf", "items", "additionalProperties")


def broken(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What a program that reads the old would stumble over in the new."""
    for name, kind in old["$defs"].items():
        now = new["$defs"].get(name, {})
        if name in CLOSED and kind.get("enum") != now.get("enum"):
            yield f"{name}: other values"
        if not set(kind.get("required", ())) <= set(now.get("required", ())):
            yield f"{name}: no longer always there"
        for field, was in kind.get("properties", {}).items():
            yield from _changed(f"{name}.{field}", was, now.get("properties", {}).get(field))


def _changed(field: str, was: dict[str, Any], now: dict[str, Any] | None) -> Iterator[str]:
    if now is None:
        yield f"{field}: gone"
        return
    yield from (f"{field}: another {key}" for key in (*SAME, "enum") if was.get(key) != now.get(key))


def test_nothing_that_was_promised_has_changed() -> None:
    assert list(broken(FIRST, schema())) == []


def _field_gone(made: dict[str, Any]) -> None:
    del made["$defs"]["Diagnosis"]["properties"]["title"]


def _other_type(made: dict[str, Any]) -> None:
    made["$defs"]["Result"]["properties"]["seconds"] = {"type": "string"}


def _other_value(made: dict[str, Any]) -> None:
    made["$defs"]["Action"]["enum"].append("pray")


def _no_longer_required(made: dict[str, Any]) -> None:
    made["$defs"]["Report"]["required"].remove("facts")


@pytest.mark.parametrize("change", [_field_gone, _other_type, _other_value, _no_longer_required])
def test_a_change_that_breaks_programs_is_seen(change: Callable[[dict[str, Any]], None]) -> None:
    made = copy.deepcopy(schema())
    change(made)
    assert list(broken(FIRST, made))


def test_a_new_field_is_no_change() -> None:
    made = copy.deepcopy(schema())
    made["$defs"]["Report"]["properties"]["moon"] = {"type": "string"}
    made["$defs"]["Report"]["required"].append("moon")
    assert list(broken(FIRST, made)) == []
