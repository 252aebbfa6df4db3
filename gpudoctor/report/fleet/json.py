"""A fleet for programs: the names are a contract, see `gpudoctor schema fleet`."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudoctor.fleet.model import SCHEMA, Fleet


def render(fleet: Fleet) -> str:
    """`schema` first, by which a file is recognised."""
    plain = msgspec.to_builtins(fleet, enc_hook=str, str_keys=True)
    return msgspec.json.format(msgspec.json.encode({"schema": SCHEMA, **plain}), indent=1).decode() + "\n"


def schema() -> dict[str, Any]:
    """The schema of the above."""
    made = msgspec.json.schema(Fleet)
    made["$defs"]["Fleet"]["properties"]["schema"] = {"const": SCHEMA}
    return made
