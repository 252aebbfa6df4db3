"""Faults for code hosts: SARIF 2.1.0 for code scanning, and workflow commands that GitHub shows as annotations.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from gpudoctor.lint.files import Linted
from gpudoctor.lint.model import Fault, Rule
from gpudoctor.plain import plain
from gpudoctor.version import __version__

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"fail": "error", "warn": "warning", "info": "note"}
_COMMANDS = {"fail": "error", "warn": "warning", "info": "notice"}


def sarif(linted: Sequence[Linted], rules: Iterable[Rule]) -> str:
    """rules: all that were looked for."""
    known = sorted(rules, key=lambda rule: rule.id)
    numbers = {rule.id: number for number, rule in enumerate(known)}
    driver = {"name": "gpudoctor", "version": __version__, "rules": [_rule(rule) for rule in known]}
    results = [_result(file.name, fault, numbers) for file in linted for fault in file.faults]
    run = {"tool": {"driver": driver}, "automationDetails": {"id": "gpudoctor-lint/"}, "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "helpUri": rule.references[0],
        "help": {"text": f"{rule.why}\n\nWrite:\n{rule.write}"},
        "defaultConfiguration": {"level": _LEVELS[rule.status]},
    }


def _result(name: str, fault: Fault, numbers: dict[str, int]) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": _uri(name)}, "region": {"startLine": max(fault.line, 1)}}
    return {
        "ruleId": fault.rule.id,
        "ruleIndex": numbers[fault.rule.id],
        "level": _LEVELS[fault.status],
        "message": {"text": f"{fault.rule.title}: {plain(fault.message)}\nWrite:\n{plain(fault.write)}"},
        "locations": [{"physicalLocation": place}],
    }


def _uri(name: str) -> str:
    """Relative names stay relative to the repository."""
    path = PurePath(name)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def github(linted: Iterable[Linted]) -> str:
    return "".join(f"{_annotation(file.name, fault)}\n" for file in linted for fault in file.faults)


def _annotation(name: str, fault: Fault) -> str:
    about = {"file": name, "line": str(max(fault.line, 1)), "title": f"{fault.rule.title} [{fault.rule.id}]"}
    properties = ",".join(f"{key}={_property(value)}" for key, value in about.items())
    said = "\n".join((fault.message, fault.rule.why, "Write:", fault.write))
    return f"::{_COMMANDS[fault.status]} {properties}::{_data(said)}"


def _data(text: str) -> str:
    """As escapeData of https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts."""
    return plain(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
