"""Times on the command line: 30, 30s, 5m, 1h or 2d, with every option that takes one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    ParamType = click.ParamType[float]
else:
    ParamType = click.ParamType  # older releases of click have no generic one

UNITS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


class Time(ParamType):
    """A time between two limits, in the unit of a number without one. least, most: in this unit."""

    name = "time"

    def __init__(self, least: float, most: float, unit: str = "s") -> None:
        self._least = least
        self._most = most
        self._unit = unit

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([a-z]*)", value.strip(), re.ASCII)
        unit = found[2] or self._unit if found else ""
        if found and unit in UNITS:
            time = float(found[1]) * UNITS[unit] / UNITS[self._unit]
            if self._least <= time <= self._most:
                return time
        limits = f"between {self._shown(self._least)} and {self._shown(self._most)}"
        raise click.BadParameter(f"{value!r} is not a time {limits}, such as {self._examples()}.", context, parameter)

    def _shown(self, time: float) -> str:
        """In the largest unit in which it is a whole number, as 10h of 36000 s."""
        seconds = time * UNITS[self._unit]
        unit = next((name for name in ("d", "h", "m") if seconds >= UNITS[name] and seconds % UNITS[name] == 0), "s")
        return f"{seconds / UNITS[unit]:g}{unit}"

    def _examples(self) -> str:
        return "10, 90s or 1h" if self._unit == "m" else "30, 30s or 5m"
