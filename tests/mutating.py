"""Changes what gpudoctor reads in every way that a fixed seed gives: values, bytes, lines."""

from __future__ import annotations

import copy
import random
from typing import Any

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64 - 1, -(2**63), 10**30, 1e308, -1e308, 5e-324, 0.1),
    *("", " ", "\n", "0", "-1", "1e999", "nan", "inf", "x" * 5000, "\x00", "\x1b[31mX\x1b]0;x\x07", "\u202e\u2066abc"),
    *("<script>alert(1)</script>", "'; rm -rf /nonexistent; '", "$(false)", "`false`", "../../etc/passwd", "GPU-0"),
    *("0000:00:00.0", "999999999.999.999", "580.", "a.b.c", "0x", "10de:2330", "%s%d{0}{x}", "9" * 400, "|", "[", "\\"),
    *([], {}, [[]], [{}], {"a": {}}, [None], [1, 2, 3], ["x"], {"": ""}, {"a": None}, {"error": "x"}, [["a", "b"]]),
    {"code": -9, "out": "x", "err": "y"},
)
NAMES = ("\x00", "x" * 300, "<b>", "$(x)", "a\nb", "GPU", "0", "", "nvml:gpu-1", "gemm:gpuX", "file:")
PIECES = ("\n", "\x00", "'", '"', "<", ";", "9" * 30, "-", "..", "\x1b[2J", "$", "{", "[", "&a", "*a", "|", "\t", "\\", "é", "%")


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [here] if here else []
    items = value.items() if isinstance(value, dict) else enumerate(value[:60]) if isinstance(value, list) else ()
    for key, part in items:
        found += places(part, (*here, key))
    return found


def at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def changed(value: Any, among: list[tuple[Any, ...]], by: random.Random) -> Any:
    """A copy with one to four changes."""
    whole = copy.deepcopy(value)
    for _ in range(by.choice((1, 1, 1, 2, 4))):
        place = by.choice(among)
        try:
            _change(at(whole, place[:-1]), place[-1], at(value, by.choice(among)), by)
        except (LookupError, TypeError, OverflowError):  # an earlier change took it away
            continue
    return whole


def _change(parent: Any, key: Any, other: Any, by: random.Random) -> None:
    old, how = parent[key], by.random()
    if how < 0.6:
        parent[key] = copy.deepcopy(by.choice(VALUES))
    elif how < 0.7:
        del parent[key]
    elif how < 0.8:
        parent[key] = copy.deepcopy(other)
    elif how < 0.88 and isinstance(parent, dict):
        parent[by.choice(NAMES)] = parent.pop(key)
    elif isinstance(old, str):
        parent[key] = text(old, by)
    elif isinstance(old, list):
        parent[key] = old * by.choice((0, 2, 50))
    elif isinstance(old, (int, float)):
        parent[key] = -old * by.choice((1, 1e9, 1e-9))


def text(old: str, by: random.Random) -> str:
    """With a piece put in, taken out, moved or said again."""
    lines = old.splitlines(keepends=True) or [""]
    for _ in range(by.choice((1, 1, 2, 5))):
        number = by.randrange(len(lines))
        line = lines[number]
        start = by.randrange(len(line) + 1)
        lines[number] = by.choice(
            (
                line[:start] + by.choice(PIECES) + line[start:],
                line[:start] + line[start + by.randrange(20) :],
                line * by.choice((0, 2, 30)),
                by.choice(lines),
                line[:start] + line[start:] * 5,
            )
        )
    return "".join(lines)


def data(old: bytes, by: random.Random) -> bytes:
    found = bytearray(old)
    for _ in range(by.choice((1, 1, 3, 20))):
        start = by.randrange(len(found) + 1)
        how = by.randrange(4)
        if how == 0 and found:
            found[start % len(found)] = by.randrange(256)
        elif how == 1:
            del found[start : start + by.choice((1, 7, 512, 5000))]
        elif how == 2:
            found[start:start] = bytes(by.randrange(256) for _ in range(by.choice((1, 8, 100))))
        else:
            found[start:start] = found[start : start + 512]
    return bytes(found)
