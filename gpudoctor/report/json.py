"""The report for programs: the names are a contract, see `gpudoctor schema`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from gpudoctor.model import Report

INTERNAL = ("kind", "where", "reboot", "engines", "syntax", "started_by")  # fields of a fix that are not published
CHOICE = ("on", "recipe")  # how a fix was chosen; a fix in a report is for this machine


def render(report: Report) -> str:
    plain = msgspec.to_builtins(report, enc_hook=str, str_keys=True)
    hide([*plain["diagnosis"], *plain["notes"]], (*CHOICE, *INTERNAL))
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def hide(diagnosis: Iterable[dict[str, Any]], names: Collection[str]) -> None:
    """Removes fields from the fixes of a diagnosis."""
    for entry in diagnosis:
        entry["fixes"] = [{name: value for name, value in fix.items() if name not in names} for fix in entry["fixes"]]
