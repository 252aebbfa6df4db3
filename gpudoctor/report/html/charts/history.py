"""Clocks, power and temperature of each GPU while everything was measured, and what was measured when."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpudoctor.model import Report
from gpudoctor.report.html.charts.drawing import WIDTH, Cell, Chart, Key, Table, drawn, lines, mark

_PREFIX = "history:gpu"
_READINGS = {
    "sm_mhz": ("Clock of the multiprocessors", "MHz"),
    "watts": ("Power", "W"),
    "celsius": ("Temperature", "°C"),
}
_MOST_LINES = 8  # with more GPUs: the lowest, the middle and the highest of all
_TICKS = 5
_ROOM = 1.05  # above the highest
_LETTER = 8  # pixels, at most
_LANE = 0.1  # of the chart's height, below the line of zero

Series = list[tuple[float, float]]
History = Mapping[str, Any]


def charts(report: Report) -> Iterator[Chart]:
    histories = _histories(report)
    for name, (title, unit) in _READINGS.items():
        found = {gpu: series for gpu, history in histories.items() if (series := _series(history, name))}
        if found:
            yield _chart(name, title, unit, found, histories[next(iter(found))].get("workloads", {}))


def _histories(report: Report) -> dict[int, History]:
    found = {id.removeprefix(_PREFIX): run for id, run in report.measured.runs.items() if id.startswith(_PREFIX)}
    return {int(gpu): run for gpu, run in sorted(found.items()) if gpu.isdigit() and isinstance(run, Mapping)}


def _series(history: History, name: str) -> Series:
    every = history.get("every_seconds", 0)
    values = enumerate(history.get(name, ()))
    series = [(number * every, float(value)) for number, value in values if value is not None]
    return series if len(series) > 1 else []


def _chart(name: str, title: str, unit: str, found: dict[int, Series], workloads: Mapping[str, Any]) -> Chart:
    about = f"{unit} during the {max(series[-1][0] for series in found.values()):.0f} s of measuring."
    about += " The blocks below zero: what ran then." if workloads else ""
    if len(found) > _MOST_LINES:
        shown, kinds = _spread(found), ["faint", "good", "faint"]
        keys = [Key("good", f"median of {len(found)} GPUs"), Key("faint", "lowest and highest")]
    else:
        shown, kinds = list(found.values()), [f"gpu-{number}" for number in range(len(found))]
        keys = [Key(f"gpu-{number}", f"GPU {gpu}") for number, gpu in enumerate(found)]
    table = Table(("GPU, or what ran", f"Lowest ({unit})", "Median", "Highest"), tuple(_rows(found, workloads)))
    svg = drawn(_lines(shown, workloads), f"{title}: {about}", [*kinds, *("lane ran" for _ in workloads)])
    return Chart(f"history-{name}", title, about, svg, table, tuple(keys) if len(found) > 1 else ())


def _rows(found: Mapping[int, Series], workloads: Mapping[str, Any]) -> Iterator[tuple[Cell, ...]]:
    """Of each GPU, and of all of them while each workload ran."""
    named = {f"GPU {gpu}": [value for _, value in series] for gpu, series in found.items()}
    for name, (began, ended) in workloads.items():
        during = [value for series in found.values() for at, value in series if began <= at <= ended]
        named[f"{name}, {began:.1f} to {ended:.1f} s"] = during
    for name, values in named.items():
        if values:
            yield Cell(name), *(Cell(f"{of(values):.0f}") for of in (min, statistics.median, max))


def _spread(found: Mapping[int, Series]) -> list[Series]:
    """The lowest, the median and the highest of all GPUs at each moment: they were sampled in rounds."""
    moments: dict[float, list[float]] = {}
    for series in found.values():
        for at, value in series:
            moments.setdefault(at, []).append(value)
    of = (min, statistics.median, max)
    return [[(at, float(function(values))) for at, values in sorted(moments.items())] for function in of]


def _lines(found: Sequence[Series], workloads: Mapping[str, Any]) -> Any:
    highest = max(value for series in found for _, value in series) or 1.0
    last = max(series[-1][0] for series in found)
    lane = -_LANE * highest
    step = _step(highest)
    chart = lines(
        height=220,
        range=(2 * lane if workloads else 0, _ROOM * highest),
        xrange=(0, last),
        y_labels=[number * step for number in range(int(_ROOM * highest / step) + 1)],
        x_labels=[number * _step(last) for number in range(int(last / _step(last)) + 1)],
        x_value_formatter=lambda seconds: f"{seconds:g} s",
        value_formatter=lambda value: f"{value:g}",
        print_labels=True,
    )
    for series in found:
        chart.add("", series)
    for name, (began, ended) in workloads.items():
        fits = (ended - began) / last * WIDTH > len(name) * _LETTER
        says = f"{name}: {began:.1f} to {ended:.1f} s"
        middle = mark(((began + ended) / 2, lane), says, "end", label=name if fits else "")
        chart.add("", [(began, lane), middle, (ended, lane)], show_dots=True, dots_size=0)
    return chart


def _step(highest: float) -> float:
    """Between ticks: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(highest / _TICKS))
    return next(step * power for step in (1, 2, 5, 10) if step * power * _TICKS >= highest)
