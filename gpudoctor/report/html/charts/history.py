"""Clocks, power and temperature of each GPU while everything was measured, and what was measured when."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpudoctor.model import Report
from gpudoctor.report.html.charts import lanes
from gpudoctor.report.html.charts.drawing import Cell, Chart, Key, Table, drawn, lines

_PREFIX = "history:gpu"
_READINGS = {
    "sm_mhz": ("Clock of the multiprocessors", "MHz"),
    "watts": ("Power", "W"),
    "celsius": ("Temperature", "°C"),
    "memory_celsius": ("Temperature of the memory", "°C"),
}
_MOST_LINES = 8  # with more GPUs: the lowest, the middle and the highest of all
_TICKS = 5
_ROOM = 1.05  # above the highest
_HEIGHT, _LANE_PIXELS = 200, 22
_LANE = 0.14  # of the highest

Series = list[tuple[float, float]]
History = Mapping[str, Any]


@dataclass(frozen=True)
class Seen:
    """Of one GPU: the mean of each stretch of time, at its middle, and what ran."""

    every: float
    seconds: float
    series: Series
    ran: lanes.Workloads

    def during(self, span: lanes.Span) -> list[float]:
        """Of the stretches that lie in it: one that it begins or ends in is of something else, too."""
        began, ended = span[0] + self.every / 2, span[1] - self.every / 2
        return [value for at, value in self.series if began <= at <= ended]


def charts(report: Report) -> Iterator[Chart]:
    histories = _histories(report)
    for name, (title, unit) in _READINGS.items():
        seen = {gpu: _seen(history, name) for gpu, history in histories.items()}
        if found := {gpu: one for gpu, one in seen.items() if len(one.series) > 1}:
            yield _chart(name, title, unit, found)


def _histories(report: Report) -> dict[int, History]:
    found = {id.removeprefix(_PREFIX): run for id, run in report.measured.runs.items() if id.startswith(_PREFIX)}
    known = {int(gpu): run for gpu, run in found.items() if gpu.isdigit() and isinstance(run, Mapping)}
    return dict(sorted(known.items()))


def _seen(history: History, name: str) -> Seen:
    every, values = history.get("every_seconds", 0), history.get(name, ())
    series = [((number + 0.5) * every, float(value)) for number, value in enumerate(values) if value is not None]
    ran = {workload: (float(began), float(ended)) for workload, (began, ended) in history.get("workloads", {}).items()}
    return Seen(every, every * len(values), series, ran)


def _chart(name: str, title: str, unit: str, found: Mapping[int, Seen]) -> Chart:
    seconds = max(one.seconds for one in found.values())
    ran = lanes.shared({gpu: one.ran for gpu, one in found.items()}, seconds)
    about = f"{unit} during the {seconds:.0f} s of measuring."
    about += f" Blocks below zero: what ran{', on which GPU' if len(ran) > 1 else ''}." if ran else ""
    if len(found) > _MOST_LINES:
        shown, kinds = _spread(found), ["faint", "good", "faint"]
        keys = [Key("good", f"median of {len(found)} GPUs"), Key("faint", "lowest and highest")]
    else:
        shown, kinds = [one.series for one in found.values()], [f"gpu-{number}" for number in range(len(found))]
        keys = [Key(f"gpu-{number}", f"GPU {gpu}") for number, gpu in enumerate(found)]
    table = Table(("GPU, or what ran", f"Lowest ({unit})", "Median", "Highest"), tuple(_rows(found, ran)))
    svg = drawn(_lines(shown, ran, seconds), f"{title}: {about}", [*kinds, *(kind for _ in ran for kind in lanes.KINDS)])
    return Chart(f"history-{name}", title, about, svg, table, tuple(keys) if len(found) > 1 else ())


def _rows(found: Mapping[int, Seen], ran: Sequence[lanes.Lane]) -> Iterator[tuple[Cell, ...]]:
    """Of each GPU, and of the GPUs of each lane while a workload ran on them."""
    for gpu, one in found.items():
        yield _row(f"GPU {gpu}", [value for _, value in one.series])
    for lane in ran:
        for workload in lane.workloads:
            values = [value for gpu, own in lane.ran.items() for value in found[gpu].during(own[workload])]
            if values:
                yield _row(lane.says(workload), values)


def _row(name: str, values: Sequence[float]) -> tuple[Cell, ...]:
    return Cell(name), *(Cell(f"{of(values):.0f}") for of in (min, statistics.median, max))


def _spread(found: Mapping[int, Seen]) -> list[Series]:
    """The lowest, the median and the highest of all GPUs at each moment: they were sampled in rounds."""
    moments: dict[float, list[float]] = {}
    for one in found.values():
        for at, value in one.series:
            moments.setdefault(at, []).append(value)
    of = (min, statistics.median, max)
    return [[(at, float(function(values))) for at, values in sorted(moments.items())] for function in of]


def _lines(shown: Sequence[Series], ran: Sequence[lanes.Lane], seconds: float) -> Any:
    highest = max(value for series in shown for _, value in series) or 1.0
    places = [-number * _LANE * highest for number in range(1, len(ran) + 1)]
    step = _step(highest)
    chart = lines(
        height=_HEIGHT + _LANE_PIXELS * len(ran),
        range=(min(places, default=0.0) - 0.6 * _LANE * highest * bool(ran), _ROOM * highest),
        xrange=(0, seconds),
        y_labels=[
            *(number * step for number in range(int(_ROOM * highest / step) + 1)),
            *({"value": place, "label": lane.label} for place, lane in zip(places, ran, strict=True)),
        ],
        x_labels=[number * _step(seconds) for number in range(int(seconds / _step(seconds)) + 1)],
        x_value_formatter=lambda seconds: f"{seconds:g} s",
        value_formatter=lambda value: f"{value:g}",
        print_labels=True,
    )
    for series in shown:
        chart.add("", series)
    for place, lane in zip(places, ran, strict=True):
        lanes.add(chart, lane, place, seconds)
    return chart


def _step(highest: float) -> float:
    """Between ticks: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(highest / _TICKS))
    return next(step * power for step in (1, 2, 5, 10) if step * power * _TICKS >= highest)
