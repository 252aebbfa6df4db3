"""Adds to a profile what only the steps recorded in detail show: lines, shapes and FLOP/s."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

KEY = ("call", "operator", "copied")


def added(profile: Mapping[str, Any], detail: Mapping[str, Any]) -> dict[str, Any]:
    """The times stay those of the profile: detail slows a program down."""
    tflops = {row["name"]: row["tflops"] for row in detail["operators"] if "tflops" in row}
    operators = [{**row, **({"tflops": tflops[row["name"]]} if row["name"] in tflops else {})} for row in profile["operators"]]
    waits = [placed for row in profile["waits"] for placed in _placed(row, detail["waits"])]
    waits.sort(key=lambda row: (-row["idle_s"], -row["waited_s"]))
    return {**profile, "lines": detail["lines"], "shapes": detail["shapes"], "operators": operators, "waits": waits}


def _placed(row: Mapping[str, Any], waits: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A wait with its line; one for each line if waits of its kind were seen on several, in the same proportion."""
    alike = [wait for wait in waits if "line" in wait and all(wait[name] == row[name] for name in KEY)]
    whole = sum(wait["count"] for wait in alike)
    if not whole:
        yield dict(row)
    for wait in alike:
        part = wait["count"] / whole
        times = {name: round(row[name] * part, 9) for name in ("waited_s", "idle_s")}
        yield {**row, **times, "count": max(1, round(row["count"] * part)), "line": wait["line"]}
