"""What moved while a long load was watched: counters of errors and link states over time, and the Xids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gpudoctor.model import Report
from gpudoctor.report.html.charts.drawing import Cell, Chart, Key, Table, drawn, lines

_PREFIX = "watch:gpu"
_KINDS = {"ecc": "ECC errors", "nvlink": "NVLink", "pcie": "PCIe", "rows": "remapped rows"}
_MOST_LINES, _MOST_ROWS = 8, 40
_HEIGHT, _LONGEST, _TICKS = 200, 100, 4


class _Moved(NamedTuple):
    """points: seconds since the load began, and the value."""

    gpu: int
    name: str
    points: list[tuple[float, float]]

    @property
    def words(self) -> str:
        counter, _, link = self.name.partition(":")
        kind, _, rest = counter.partition("_")
        named = f"{_KINDS.get(kind, kind)} {rest.replace('_', ' ')}"
        return f"GPU {self.gpu}{', link ' + link if link else ''}: {named}"

    @property
    def span(self) -> float:
        values = [value for _, value in self.points]
        return max(values) - min(values)


def charts(report: Report) -> Iterator[Chart]:
    runs = report.measured.runs
    moved = [*_moved(runs)]
    shared = runs.get("watch:all", {})
    xids = [*_xids(shared)]
    if not moved and not xids:
        return
    seconds = max((points[-1][0] for _, _, points in moved), default=0.0)
    title = "Counters that moved under load"
    about = f"Share of each counter's change, over {seconds:.0f} s. The numbers are in the table."
    shown = sorted(moved, key=lambda one: one.points[1][0])[:_MOST_LINES]
    rows = [*(_row(one) for one in moved), *xids][:_MOST_ROWS]
    table = Table(("What", "First change at", "From", "To"), tuple(rows))
    kinds = [f"gpu-{number}" for number in range(len(shown))]
    svg = drawn(_lines(shown, seconds), f"{title}: {about}", kinds) if shown else ""
    keys = tuple(Key(kind, one.words) for kind, one in zip(kinds, shown, strict=True))
    yield Chart("grown", title, about if shown else "What NVML and the kernel log reported.", svg, table, keys)


def _moved(runs: Mapping[str, Any]) -> Iterator[_Moved]:
    for id, run in sorted(runs.items()):
        if id.startswith(_PREFIX) and isinstance(run, Mapping):
            for name, points in run.get("moved", {}).items():
                pairs = [(float(at), float(value)) for at, value in points]
                if len(pairs) > 1:
                    yield _Moved(int(id.removeprefix(_PREFIX)), name, pairs)


def _row(one: _Moved) -> tuple[Cell, ...]:
    first, last = one.points[0][1], one.points[-1][1]
    return Cell(one.words), Cell(f"{one.points[1][0]:.0f} s"), Cell(f"{first:g}"), Cell(f"{last:g}")


def _xids(shared: Mapping[str, Any]) -> Iterator[tuple[Cell, ...]]:
    for at, gpu, code in shared.get("xids") or ():
        yield Cell(f"GPU {gpu:.0f}: Xid {code:.0f} (NVML)"), Cell(f"{at:.0f} s"), Cell(""), Cell("")
    for at, line in zip(shared.get("line_seconds") or (), shared.get("lines") or (), strict=False):
        if "Xid (" in line:
            yield Cell(line.partition("] ")[2][:_LONGEST]), Cell(f"{at:.0f} s"), Cell(""), Cell("")


def _lines(shown: list[_Moved], seconds: float) -> Any:
    """As steps: a counter keeps its value until it changes."""
    chart = lines(
        height=_HEIGHT,
        range=(0, 105),
        xrange=(0, seconds),
        y_labels=[0, 50, 100],
        x_labels=[seconds * number / _TICKS for number in range(_TICKS + 1)],
        x_value_formatter=lambda at: f"{at:.0f} s",
        value_formatter=lambda share: f"{share:.0f} %",
        print_labels=True,
    )
    for one in shown:
        lowest = min(value for _, value in one.points)
        steps: list[tuple[float, float]] = []
        for at, value in one.points:
            share = 100 * (value - lowest) / one.span
            steps += [(at, steps[-1][1]), (at, share)] if steps else [(at, share)]
        chart.add("", [*steps, (seconds, steps[-1][1])])
    return chart
