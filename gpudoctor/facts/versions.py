"""Versions as numbers."""

from __future__ import annotations

from collections.abc import Iterable


def dotted(version: Iterable[int]) -> str:
    """12.8 for (12, 8)."""
    return ".".join(map(str, version))
