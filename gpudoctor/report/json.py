"""The report for programs: the names are a contract, see `gpudoctor schema`."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudoctor.model import Report


def render(report: Report) -> str:
    plain = msgspec.to_builtins(report, enc_hook=str, str_keys=True)
    for entry in plain["diagnosis"]:
        entry["fixes"] = [_chosen(fix) for fix in entry["fixes"]]
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def _chosen(fix: dict[str, Any]) -> dict[str, Any]:
    """A fix in a report is for this machine: what it was chosen and made by says nothing more."""
    return {name: value for name, value in fix.items() if name not in ("on", "recipe")}
