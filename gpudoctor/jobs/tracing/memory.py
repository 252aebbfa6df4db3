"""GPU memory in the steps in detail, from torch's history of its allocator: course, holders at the peak, fragments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

POINTS, MOST_HOLDERS = 60, 12
RESERVING = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
EARLIER = "earlier"  # allocated before the history began
WRONG = (KeyError, IndexError, TypeError, ValueError, RecursionError)


@dataclass
class Live:
    """Blocks in use, by address: (size, place or -1, what it is or "")."""

    blocks: dict[int, tuple[int, int, str]]
    allocated: int
    reserved: int

    def change(self, action: str, address: int, size: int, place: int, what: str) -> None:
        if action == "alloc":
            self.blocks[address] = (size, place, what)
            self.allocated += size
        elif action == "free_completed":
            self.blocks.pop(address, None)
            self.allocated -= size
        else:
            self.reserved += RESERVING.get(action, 0) * size


def profile(told: Any) -> dict[str, Any]:
    """told: what the tracer wrote of a snapshot; {} if there is none, or if it has another form."""
    try:
        return _profile(told) if told else {}
    except WRONG:
        return {}


def _profile(told: Mapping[str, Any]) -> dict[str, Any]:
    events = [tuple(event) for event in told["events"]]
    live = _at_the_beginning(told, events)
    names = {address: what for address, _, is_active, _, _, what in told["blocks"] if is_active and what}
    last = {event[1]: number for number, event in enumerate(events) if event[0] == "alloc"}
    points = [(events[0][3] if events else 0, live.allocated, live.reserved)]
    most, reserved, top = live.allocated, live.reserved, -1
    for number, (action, address, size, at, place) in enumerate(events):
        live.change(action, address, size, place, names.get(address, "") if last.get(address) == number else "")
        points.append((at, live.allocated, live.reserved))
        reserved = max(reserved, live.reserved)
        if live.allocated > most:
            most, top = live.allocated, number
    at_peak = _at_the_beginning(told, events)
    for number, (action, address, size, _, place) in enumerate(events[: top + 1]):
        at_peak.change(action, address, size, place, names.get(address, "") if last.get(address) == number else "")
    return {
        "is_whole": bool(told.get("is_whole")),
        "peak_bytes": most,
        "reserved_peak_bytes": reserved,
        "reserved_at_peak_bytes": at_peak.reserved,
        "course": _course(points),
        "holders": _holders(at_peak, told["places"]),
        "calls": dict(Counter(event[0] for event in events if event[0] in RESERVING or event[0] == "oom")),
        **_fragments(told),
    }


def _at_the_beginning(told: Mapping[str, Any], events: list[tuple[Any, ...]]) -> Live:
    """From the end of the history back to its start."""
    active = {address: (size, place, what) for address, size, is_active, _, place, what in told["blocks"] if is_active}
    live = Live(active, sum(size for size, _, _ in active.values()), sum(size for size, _ in told["segments"]))
    for action, address, size, _, _ in reversed(events):
        if action == "alloc":
            live.blocks.pop(address, None)
            live.allocated -= size
        elif action == "free_completed":
            live.blocks[address] = (size, -1, "")
            live.allocated += size
        else:
            live.reserved -= RESERVING.get(action, 0) * size
    return live


def _course(points: list[tuple[int, int, int]]) -> list[list[float]]:
    """[ms, bytes in use at most, bytes reserved at most] of equal parts of the time."""
    start, end = points[0][0], points[-1][0]
    if end <= start:
        return []
    found = [[round((end - start) * (number + 1) / POINTS / 1000, 3), 0.0, 0.0] for number in range(POINTS)]
    before = points[0]
    place = 0
    for at, allocated, reserved in points:
        number = min(POINTS - 1, int((at - start) * POINTS / (end - start)))
        for each in range(place, number + 1):  # what was so before is still so
            found[each][1:] = [max(found[each][1], before[1]), max(found[each][2], before[2])]
        found[number][1:] = [max(found[number][1], allocated), max(found[number][2], reserved)]
        place, before = number, (at, allocated, reserved)
    return found


def _holders(live: Live, places: list[Any]) -> list[dict[str, Any]]:
    """By what it is, else by the line that allocated it; the largest first."""
    sums: dict[tuple[str, int], list[int]] = {}
    for size, place, what in live.blocks.values():
        key = (what, -1) if what else ("", place) if place >= 0 else (EARLIER, -1)
        each = sums.setdefault(key, [0, 0])
        each[0] += size
        each[1] += 1
    order = sorted(sums.items(), key=lambda item: -item[1][0])[:MOST_HOLDERS]
    return [
        {"bytes": size, "blocks": blocks, **({"what": what} if what else _line(places[place]))}
        for (what, place), (size, blocks) in order
    ]


def _line(place: Any) -> dict[str, Any]:
    file, line, function = place
    return {"file": str(file), "line": int(line), "function": str(function)}


def _fragments(told: Mapping[str, Any]) -> dict[str, Any]:
    """At the end: what is free lies in whole segments, which can be given back, or between blocks in use, which cannot."""
    used = {segment for _, _, is_active, segment, _, _ in told["blocks"] if is_active}
    free = [(size, segment in used) for _, size, is_active, segment, _, _ in told["blocks"] if not is_active]
    between = [size for size, is_between in free if is_between]
    return {
        "free_bytes": sum(size for size, _ in free),
        "free_between_bytes": sum(between),
        "pieces": len(between),
        "largest_free_bytes": max((size for size, _ in free), default=0),
        "is_expandable": any(is_expandable for _, is_expandable in told["segments"]),
    }
