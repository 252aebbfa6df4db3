"""The timeline of a watched job: for each GPU how busy it was, and the busiest thread of the process that uses it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Report
from gpudoctor.report import watched
from gpudoctor.report.html.charts.drawing import Cell, Chart, Key, Table, drawn, lines

_MOST_GPUS = 8
_HEIGHT = 200
_TICKS = 5
# Curve -> what it is called, what makes it a percentage.
_CURVES = {
    "busy": ("some kernel ran (NVML)", 1.0),
    "graphics": ("some kernel ran (GPM)", 1.0),
    "sm": ("multiprocessors that worked", 1.0),
    "tensor": ("tensor cores", 1.0),
    "dram": ("memory bandwidth", 1.0),
    "main_thread": ("busiest thread of the program", 100.0),
}

Series = list[tuple[float, float]]


def charts(report: Report) -> Iterator[Chart]:
    found = watched.of(report)
    if found and found["gpus"]:
        rows = tuple(tuple(map(Cell, row)) for row in watched.rows(found))
        yield Chart(
            "watched", "GPUs while they were watched", "; ".join(watched.verdicts(report, found)), "", Table(watched.HEAD, rows)
        )
    for gpu in (found or {"gpus": ()})["gpus"][:_MOST_GPUS]:
        assert found is not None
        curves = dict(_curves(gpu, float(found["every"])))
        if curves:
            yield _chart(gpu, curves, float(found["seconds"]))


def _curves(gpu: Mapping[str, Any], every: float) -> Iterator[tuple[str, Series]]:
    timeline = gpu["timeline"]
    for name, (_, factor) in _CURVES.items():
        if name == "busy" and "graphics" in timeline:
            continue
        values = timeline.get(name, ())
        series = [((at + 0.5) * every, min(100.0, factor * value)) for at, value in enumerate(values) if value is not None]
        if len(series) > 1:
            yield name, series


def _chart(gpu: Mapping[str, Any], curves: Mapping[str, Series], seconds: float) -> Chart:
    title = f"GPU {gpu['index']} while the job was watched"
    about = f"Percent over {seconds:.0f} s. Where the first curve is low and the program's thread is high, the GPU waits for it."
    chart = lines(
        height=_HEIGHT,
        range=(0, 105),
        xrange=(0, seconds),
        y_labels=[0, 25, 50, 75, 100],
        x_labels=[number * _step(seconds) for number in range(int(seconds / _step(seconds)) + 1)],
        x_value_formatter=lambda at: f"{at:g} s",
        value_formatter=lambda value: f"{value:.0f} %",
        print_labels=True,
    )
    for series in curves.values():
        chart.add("", series)
    kinds = [f"gpu-{number}" for number in range(len(curves))]
    keys = tuple(Key(kind, _CURVES[name][0]) for kind, name in zip(kinds, curves, strict=True))
    cells = tuple(_row(_CURVES[name][0], [value for _, value in series]) for name, series in curves.items())
    table = Table(("Percent", "Lowest", "Mean", "Highest"), cells)
    return Chart(f"watched-{gpu['index']}", title, about, drawn(chart, f"{title}. {about}", kinds), table, keys, wide=True)


def _row(name: str, values: list[float]) -> tuple[Cell, ...]:
    return Cell(name), *(Cell(f"{value:.0f}") for value in (min(values), sum(values) / len(values), max(values)))


def _step(highest: float) -> float:
    power = 10.0 ** math.floor(math.log10(max(highest, 1.0) / _TICKS))
    return next(step * power for step in (1, 2, 5, 10) if step * power * _TICKS >= highest)
