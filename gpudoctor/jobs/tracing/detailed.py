"""Adds to a profile what only the steps recorded in detail show: operators, lines, shapes and FLOP/s."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

COUNTED = ("calls", "host_s", "gpu_s", "gpu_whole_s")  # of an operator, that are more in a longer window
SPLIT = ("launching", "python")


def added(profile: Mapping[str, Any], detail: Mapping[str, Any]) -> dict[str, Any]:
    """The times stay those of the profile: detail slows a program down."""
    waits = [placed for row in profile["waits"] for placed in _placed(row, detail["waits"])]
    waits.sort(key=lambda row: (-row["idle_s"], -row["waited_s"]))
    found = {**profile, "lines": detail["lines"], "shapes": detail["shapes"], "waits": waits}
    found["collectives"] = profile["collectives"] or detail["collectives"]
    if profile["operators"]:
        return {**found, "operators": _with_flops(profile["operators"], detail["operators"])}
    return {**found, "operators": _in_window(profile, detail), "gaps_s": _gaps(profile["gaps_s"], detail["gaps_s"])}


def _with_flops(operators: list[dict[str, Any]], detail: list[dict[str, Any]]) -> list[dict[str, Any]]:
    tflops = {row["name"]: row["tflops"] for row in detail if "tflops" in row}
    return [{**row, **({"tflops": tflops[row["name"]]} if row["name"] in tflops else {})} for row in operators]


def _in_window(profile: Mapping[str, Any], detail: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The operators of the steps in detail, as often as the window has such work."""
    for name in ("kernel_s", "window_s"):
        if profile[name] and detail[name]:
            by = profile[name] / detail[name]
            return [_scaled(row, by) for row in detail["operators"]]
    return list(detail["operators"])


def _scaled(row: Mapping[str, Any], by: float) -> dict[str, Any]:
    found = {**row, **{name: round(row[name] * by, 9) for name in COUNTED if name in row}}
    return {**found, "calls": max(1, round(row["calls"] * by))}


def _gaps(gaps: Mapping[str, float], detail: Mapping[str, float]) -> dict[str, float]:
    """Without operators, what a gap between two launches was spent on is not seen: it is split as in the detail."""
    whole, seen = sum(gaps[name] for name in SPLIT), sum(detail[name] for name in SPLIT)
    if not seen:
        return dict(gaps)
    return {**gaps, **{name: round(whole * detail[name] / seen, 9) for name in SPLIT}}


def _placed(row: Mapping[str, Any], waits: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A wait with its operator and line; one for each if waits of its kind were seen on several, in the same proportion."""
    alike = [wait for wait in waits if _is_alike(row, wait)]
    whole = sum(wait["count"] for wait in alike)
    if not whole:
        yield dict(row)
    for wait in alike:
        part = wait["count"] / whole
        times = {name: round(row[name] * part, 9) for name in ("waited_s", "idle_s")}
        line = {"line": wait["line"]} if "line" in wait else {}
        yield {**row, **times, "operator": wait["operator"], "count": max(1, round(row["count"] * part)), **line}


def _is_alike(row: Mapping[str, Any], wait: Mapping[str, Any]) -> bool:
    if any(wait[name] != row[name] for name in ("call", "copied")):
        return False
    return "line" in wait and wait["operator"] == row["operator"] if row["operator"] else True
