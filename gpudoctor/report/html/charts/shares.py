"""Measured against expected, for each GPU and dtype: bars up to the line that a healthy GPU reaches."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpudoctor.judging.measured.shortfalls import FAIL, SIBLING, WARN, digits
from gpudoctor.model import Figure, Report
from gpudoctor.report.html.charts.drawing import WIDTH, Cell, Chart, Key, Table, bars, drawn, is_lying, lying_bars, mark

_CHARTS = {
    "Matrix products": (("gemm",), "GEMM "),
    "Memory bandwidth": (("memory-bandwidth",), "memory "),
    "Transfers between host and GPU": (("host-transfers",), "pinned "),
    "The same kernel from each toolchain": (("toolchain-ladder",), "square by "),
    "Frameworks": (("cupy-kernels", "numba-kernel", "jax-matmul"), ""),
}
_MOST_BARS = 96  # with more: the slowest, the middle and the fastest GPU
_LEAST_BARS = 2  # one alone is no chart
_NAMED_PIXELS = 52  # bars that are narrower do not carry their numbers
_USUAL_GROUPS = 6
_KEYS = {
    "good": "as expected",
    "warn": f"below {WARN:.0%}, or below its siblings",
    "fail": f"below {FAIL:.0%}, or a wrong result",
}

Grid = dict[tuple[int, str], Figure]


def charts(report: Report) -> Iterator[Chart]:
    for title, (checks, prefix) in _CHARTS.items():
        grid = _grid([figure for check in checks for figure in report.measured.figures.get(check, ())])
        if len(grid) >= _LEAST_BARS:
            yield _chart(checks[0], title, prefix, grid)


def _grid(figures: Iterable[Figure]) -> Grid:
    return {
        (figure.gpu, figure.what): figure
        for figure in figures
        if figure.gpu is not None and figure.share is not None and not figure.less_is_better
    }


def _chart(check: str, title: str, prefix: str, grid: Grid) -> Chart:
    kinds = _kinds(grid)
    whats = list(dict.fromkeys(what for _, what in grid))
    labels = {what: what.removeprefix(prefix) for what in whats}
    gpus = sorted({gpu for gpu, _ in grid})
    series, lying = _series(grid, whats), is_lying(list(labels.values()))
    about = f"Share of the expected value (the line at 100 %); {_each(gpus, len(series), lying)}."
    named = not lying and len(whats) * len(series) * _NAMED_PIXELS <= WIDTH
    units = {figure.unit for figure in grid.values()}
    about += f" In the bars: {', '.join(units)}." if named and len(units) == 1 else ""
    svg = drawn(_bars(series, kinds, list(labels.values()), named), f"{title}: {about}")
    keys = tuple(Key(kind, text) for kind, text in _KEYS.items() if kind in kinds.values() or kind == "good")
    return Chart(f"measured-{check}", title, about, svg, _table(grid, kinds, labels), keys)


def _table(grid: Grid, kinds: Mapping[tuple[int, str], str], labels: Mapping[str, str]) -> Table:
    """With as few columns as can be: a row for each GPU, or for all that was measured on few."""
    gpus = sorted({gpu for gpu, _ in grid})
    if len(gpus) < len(labels):
        each = (
            (Cell(label), Cell(_healthy(grid, what)), *(_cell(grid, kinds, gpu, what) for gpu in gpus))
            for what, label in labels.items()
        )
        return Table(("Measured", "Expected", *(f"GPU {gpu}" for gpu in gpus)), tuple(each))
    head = ("GPU", *(f"{label}, expected {_healthy(grid, what)}" for what, label in labels.items()))
    rows = ((Cell(f"GPU {gpu}"), *(_cell(grid, kinds, gpu, what) for what in labels)) for gpu in gpus)
    return Table(head, tuple(rows))


def _series(grid: Grid, whats: Sequence[str]) -> list[list[Figure | None]]:
    """The bars of each GPU; of many GPUs those of the slowest, the middle and the fastest."""
    if len(grid) <= _MOST_BARS:
        return [[grid.get((gpu, what)) for what in whats] for gpu in sorted({gpu for gpu, _ in grid})]
    ranked = [sorted((figure for (_, what), figure in grid.items() if what == wanted), key=_rank) for wanted in whats]
    return [[found[int(at * (len(found) - 1))] for found in ranked] for at in (0, 0.5, 1)]


def _rank(figure: Figure) -> tuple[bool, float]:
    return not figure.wrong, figure.value


def _each(gpus: Sequence[int], series: int, lying: bool) -> str:
    if len(gpus) == 1:
        return f"GPU {gpus[0]}"
    if len(gpus) == series:
        return f"each bar is a GPU, from GPU {gpus[0]} {'at the top' if lying else 'on the left'}"
    return f"the slowest, the middle and the fastest of {len(gpus)} GPUs"


def _healthy(grid: Grid, what: str) -> str:
    best = max((figure for (_, other), figure in grid.items() if other == what), key=lambda figure: figure.expected or 0)
    return f"{digits(best.expected or 0)} {best.unit}"


def _kinds(grid: Grid) -> dict[tuple[int, str], str]:
    """The status of each figure, on its own and compared with its siblings."""
    values: dict[str, list[float]] = {}
    for (_, what), figure in grid.items():
        values.setdefault(what, []).append(figure.value)
    medians = {what: statistics.median(found) for what, found in values.items()}
    return {place: _kind(figure, medians[figure.what]) for place, figure in grid.items()}


def _kind(figure: Figure, median: float) -> str:
    share = figure.share or 0.0
    if figure.wrong or share < FAIL:
        return "fail"
    return "warn" if share < WARN or figure.value < SIBLING * median else "good"


def _cell(grid: Grid, kinds: Mapping[tuple[int, str], str], gpu: int, what: str) -> Cell:
    figure = grid.get((gpu, what))
    if figure is None:
        return Cell("–")
    kind = kinds[gpu, what]
    said = f"{digits(figure.value)} ({figure.share:.0%}{', wrong' if figure.wrong else ''})"
    return Cell(said, "" if kind == "good" else kind, figure.wrong or figure.rule)


def _bars(
    series: Sequence[Sequence[Figure | None]], kinds: Mapping[tuple[int, str], str], labels: list[str], named: bool
) -> object:
    highest = max(100 * (figure.share or 0) for found in series for figure in found if figure)
    shares = {
        "range": (0, 1.1 * max(100, highest)),
        "y_labels_major": [100],
        "value_formatter": lambda share: f"{share:.0f} %",
    }
    lying = is_lying(labels)
    if lying:  # the first is drawn at the bottom
        height = 60 + len(labels) * max(24, 5 * len(series))
        chart = lying_bars(x_labels=labels[::-1], height=height, margin_left=20, y_labels=[0, 50, 100], **shares)
    else:
        side = max(0, _USUAL_GROUPS - len(labels)) * 6  # two bars are not to fill the chart
        look = {
            "margin_left": 6 + side,
            "margin_right": 12 + side,
            "print_labels": named,
            "print_values_position": "bottom",
        }  # at the top they would lie on the line
        chart = bars(x_labels=labels, y_labels=[0, 25, 50, 75, 100], **look, **shares)
    for found in series:
        each = [_bar(figure, kinds[figure.gpu or 0, figure.what]) if figure else None for figure in found]
        chart.add("", each[::-1] if lying else each)
    return chart


def _bar(figure: Figure, kind: str) -> object:
    says = f"GPU {figure.gpu}, {figure.what}: {digits(figure.value)} {figure.unit}, healthy {digits(figure.expected or 0)}"
    says += f" ({figure.rule})" + (f"; {figure.wrong}" if figure.wrong else "")
    return mark(100 * (figure.share or 0), says, kind, label=digits(figure.value))
