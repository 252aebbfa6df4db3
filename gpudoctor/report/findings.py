"""The findings of a diagnosis as text, grouped by problem, with the units of evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpudoctor.model import Confidence, Diagnosis, Fix, Ignored, Report

_UNITS = {"c": "°C", "watts": "W", "mib": "MiB", "bytes": "bytes", "seconds": "s", "mhz": "MHz", "gts": "GT/s"}
_CAUSES = 8  # most possible causes that are listed
_ITS_GPU = "GPU \0"
_SAID_APART = ("tried", "ruled_out", "could_not_check", "could_be", "decide")

Group = tuple[Diagnosis, ...]


def groups(diagnosis: Iterable[Diagnosis]) -> list[Group]:
    """One entry per problem, however many GPUs have it, in the report's order."""
    found: dict[tuple[str, Confidence, bool], list[Diagnosis]] = {}
    for entry in diagnosis:
        found.setdefault((entry.problem, entry.confidence, entry.on_host), []).append(entry)
    return [tuple(group) for group in found.values()]


def title(entry: Diagnosis | Ignored) -> str:
    return f"On the host: {entry.title}" if entry.on_host else entry.title


def seen(entry: Diagnosis) -> str:
    """The message, with its GPU unless the message names it."""
    if entry.gpu is None or re.search(rf"\bGPU {entry.gpu}\b", entry.message):
        return entry.message
    return f"GPU {entry.gpu}: {entry.message}"


def seen_by_all(group: Group) -> list[str]:
    """What was seen, once for all GPUs of which the same is said: `GPUs 0, 1 and 3: 200 W instead of 700 W`."""
    numbers: dict[str, list[int | None]] = {}
    for entry in group:
        same = re.sub(rf"\bGPU {entry.gpu}\b", _ITS_GPU, seen(entry))
        numbers.setdefault(same, []).append(entry.gpu)
    return [same.replace(_ITS_GPU, _gpus(known)) for same, known in numbers.items()]


def _gpus(numbers: list[int | None]) -> str:
    *others, last = map(str, numbers)
    return f"GPUs {', '.join(others)} and {last}" if others else f"GPU {last}"


def notes(report: Report) -> list[str]:
    """A line for each problem that costs nothing today."""
    return [
        f"Note: {title(group[0])} ({'; '.join(seen_by_all(group))}). More: gpudoctor explain {group[0].problem}"
        for group in groups(report.notes)
    ]


def ignored(report: Report) -> list[str]:
    """A line for each problem that the user ignores."""
    lines = [f"Ignored until {entry.until}: {title(entry)} ({entry.problem}): {entry.reason}" for entry in report.ignored]
    return list(dict.fromkeys(lines))


def doubt(entry: Diagnosis) -> str:
    """How certain a diagnosis is if it is not confirmed, and what was ruled out."""
    if entry.confidence is Confidence.CONFIRMED:
        return ""
    words = "Likely, but not confirmed." if entry.confidence is Confidence.LIKELY else "Cause not found."
    if could_be := entry.evidence.get("could_be"):
        shown = ", ".join(could_be[:_CAUSES]) + (f" and {len(could_be) - _CAUSES} more" if len(could_be) > _CAUSES else "")
        words += f" Other possible causes, most likely first: {shown}."
    if ruled_out := entry.evidence.get("ruled_out"):
        words += f" Ruled out: {value(list(dict.fromkeys(ruled_out)))}."
    if tried := entry.evidence.get("tried"):
        words += "".join(f" Tried: {each}." for each in tried)
    if unread := entry.evidence.get("could_not_check"):
        words += f" Could not be checked: {value(unread)}."
    return words


def places(group: Group) -> str:
    """The commands and files in which a person sees it."""
    return ", ".join(dict.fromkeys(place for entry in group for place in entry.seen_in))


def decides(entry: Diagnosis) -> str:
    """The command that shows which of the possible causes it is."""
    return str(entry.evidence.get("decide", ""))


def evidence(entry: Diagnosis) -> dict[str, str]:
    """Name -> value with its unit, without what `doubt` shows."""
    said = {key: item for key, item in entry.evidence.items() if key not in _SAID_APART and item not in (None, "", [], (), {})}
    return dict(named(key, item) for key, item in said.items())


def named(key: str, item: Any) -> tuple[str, str]:
    """The name in words, and the value with the unit that the name ends with."""
    name, _, last = key.rpartition("_")
    if name and last in _UNITS and isinstance(item, (int, float)):
        return name.replace("_", " "), f"{value(item)} {_UNITS[last]}"
    return key.replace("_", " "), value(item)


def value(item: Any) -> str:
    if isinstance(item, Mapping):
        return "; ".join(f"{key} ({value(about)})" for key, about in item.items())
    if isinstance(item, (list, tuple, set, frozenset)):
        return ", ".join(map(value, item))
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, float):
        return f"{item:.2f}".rstrip("0").rstrip(".")
    return "none" if item is None else str(item)


def fixes(group: Group) -> list[Fix]:
    """Each fix once: a fix whose command differs from GPU to GPU has several lines."""
    merged: dict[tuple[str, int], Fix] = {}
    for entry in group:
        titles = [fix.title for fix in entry.fixes]
        for number, fix in enumerate(entry.fixes):
            key = fix.title, titles[:number].count(fix.title)  # two fixes with one title are alternatives
            known = merged.get(key, fix)
            command, verify = _joined(known.command, fix.command), _joined(known.verify, fix.verify)
            merged[key] = replace(known, command=command, verify=verify, undo=_joined(known.undo, fix.undo))
    return list(merged.values())


def _joined(known: str, more: str) -> str:
    return known if f"\n{more}\n" in f"\n{known}\n" else "\n".join(filter(None, (known, more)))


def explained(group: Group) -> list[str]:
    """The checks that the diagnosis explains, without the check of texts, whose messages are listed as effects."""
    return [check for check in dict.fromkeys(check for entry in group for check in entry.explains) if check != "messages"]
