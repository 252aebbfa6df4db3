"""Bus bandwidth of an all-reduce by the size of its message."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from gpudoctor.judging.measured.shortfalls import digits
from gpudoctor.model import Figure, Report
from gpudoctor.report.html.charts.drawing import Cell, Chart, Key, Table, drawn, lines, mark, ticks

_SIZE = re.compile(r"^all-reduce (?P<size>(?P<number>[\d.]+) (?P<unit>B|KiB|MiB|GiB)), bus bandwidth$")
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
Sizes = dict[float, tuple[str, Figure]]


def charts(report: Report) -> Iterator[Chart]:
    found = _sizes(report.measured.figures.get("all-reduce", ()))
    if len(found) < 2:
        return
    expected = [(figure.expected, figure.rule) for _, figure in found.values() if figure.expected]
    about = "GB/s that each GPU's links carry while all GPUs sum up; small messages are bound by latency."
    keys = [Key("good", "measured"), *(Key("healthy", f"healthy: {digits(value)} ({rule})") for value, rule in expected[:1])]
    rows = tuple((Cell(size), Cell(f"{digits(figure.value)} GB/s", about=figure.rule)) for size, figure in found.values())
    title = "All-reduce: bus bandwidth by size"
    svg = drawn(_lines(found, expected[0][0] if expected else None), f"{title}: {about}", ("good", "healthy"))
    yield Chart("all-reduce", title, about, svg, Table(("Message", "Bus bandwidth"), rows), tuple(keys))


def _sizes(figures: Sequence[Figure]) -> Sizes:
    """Logarithm of the bytes -> the size in words, and what was measured."""
    found = ((_SIZE.match(figure.what), figure) for figure in figures)
    sizes = {math.log2(float(size["number"]) * _BYTES[size["unit"]]): (size["size"], figure) for size, figure in found if size}
    return dict(sorted(sizes.items()))


def _lines(found: Sizes, expected: float | None) -> object:
    first, last = min(found), max(found)
    chart = lines(
        show_dots=True,
        dots_size=4,
        range=(0, 1.1 * max(expected or 0, *(figure.value for _, figure in found.values()))),
        xrange=(first - 0.5, last + 0.5),
        x_labels=ticks({at: size for at, (size, _) in found.items()}),
        value_formatter=digits,
    )
    chart.add(
        "", [mark((at, figure.value), f"{size}: {digits(figure.value)} GB/s", "good") for at, (size, figure) in found.items()]
    )
    if expected:
        ends = [(first - 0.5, expected), (last + 0.5, expected)]
        chart.add("", ends, show_dots=False)
    return chart
