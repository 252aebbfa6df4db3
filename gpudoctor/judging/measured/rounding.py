"""What a result that was compared with a more precise one says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def wrong(values: Mapping[str, Any]) -> str:
    """By how much a result is off; "" where rounding explains it. Takes {"wrong", "relative_error", "allowed_error"}."""
    if not values.get("wrong"):
        return ""
    error = values.get("relative_error")
    if error is None:
        return "the result is no number"
    return f"the result is off by {error:.1e}, where rounding explains {values['allowed_error']:.1e}"
