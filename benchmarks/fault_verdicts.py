"""Whether a report names the cause of a fault."""

from __future__ import annotations

import json
import re
from typing import Any

Fault = dict[str, Any]
LAST_RESORTS = ("measurement-", "framework-import-", "program-raised-error", "command-", "cause-not-found")


def read(text: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(text)
        return found
    except ValueError:
        return None


def verdict(report: dict[str, Any] | None, fault: Fault) -> dict[str, Any]:
    entries = report["diagnosis"] if report else []
    first = entries[0] if entries else {}
    return {
        "problem": first.get("problem", "no report" if report is None else "nothing"),
        "message": first.get("message", ""),
        "confidence": first.get("confidence", ""),
        "others": [entry["problem"] for entry in entries[1:6]],
        "right": bool(first) and _is_right(first, fault),
        "anywhere": any(_is_right(entry, fault) for entry in entries),
        "confirmed": bool(first) and _is_right(first, fault) and first["confidence"] == "confirmed",
        "alarm": any(entry["status"] == "fail" for entry in entries) or report is None,
    }


def _is_right(entry: dict[str, Any], fault: Fault) -> bool:
    """Whether a diagnosis names the cause. A last resort, which only says that something failed, never does."""
    if entry["problem"] in fault.get("problems", ()):
        return True
    if entry["problem"].startswith(LAST_RESORTS):
        return False
    named = [str(entry["evidence"].get(key, "")) for key in ("variable", "limit", "folder", "library", "file", "path", "cause")]
    words = "\n".join([entry["title"], entry["message"], *named])
    return any(re.search(rf"(?:\b|(?=\W)){re.escape(name)}(?![A-Z_a-z])", words) for name in fault.get("names", ()))


def last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b|.*\berror:", line)]
    return (errors or lines or [""])[-1][:300]
