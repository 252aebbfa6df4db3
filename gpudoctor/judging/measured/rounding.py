"""Describes a result that was compared with a more precise one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def wrong(values: Mapping[str, Any]) -> str:
    """How far a result is off; "" if rounding explains it. Takes {"wrong", "relative_error", "allowed_error"}."""
    if not values.get("wrong"):
        return ""
    error = values.get("relative_error")
    if error is None:
        return "the result is not a number"
    return f"the result is off by {error:.1e}; rounding explains at most {values['allowed_error']:.1e}"
