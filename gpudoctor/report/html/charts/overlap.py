"""When a copy and a computation ran on two streams of one GPU: the one that hides least of all GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Report
from gpudoctor.report.html.charts.drawing import Cell, Chart, Key, Table, drawn, lines

_PREFIX = "stream-overlap:gpu"
_WAYS = ("to GPU", "from GPU")
_KINDS = {"compute": "computing", "copy": "copying"}

Spans = list[tuple[float, float]]


def charts(report: Report) -> Iterator[Chart]:
    found = {gpu: lanes for gpu, run in _runs(report).items() if (lanes := _lanes(run))}
    if not found:
        return
    hidden = {gpu: min(_hidden(run)) for gpu, run in _runs(report).items() if gpu in found}
    worst = min(hidden, key=lambda gpu: hidden[gpu])
    of = f"GPU {worst}" + (f", the least overlap of {len(found)}" if len(found) > 1 else "")
    about = f"{of}: {hidden[worst]:.0%} of a copy is hidden behind computing. Each block is a piece of work, in milliseconds."
    title = "Overlap of copies and kernels"
    rows = tuple(
        (Cell(name), Cell(f"{spans[0][0]:.2f} ms"), Cell(f"{spans[-1][1]:.2f} ms"), Cell(str(len(spans))))
        for name, spans in found[worst].items()
    )
    keys = (Key("computing", "computing"), Key("copying", "copying"))
    kinds = [f"lane {_KINDS[name.partition(' ')[0]]} {part}" for name in found[worst] for part in ("even", "odd")]
    svg = drawn(_lines(found[worst]), f"{title}: {about}", kinds)
    yield Chart("overlap", title, about, svg, Table(("Stream", "Began", "Ended", "Pieces"), rows), keys)


def _runs(report: Report) -> dict[int, Mapping[str, Any]]:
    found = {id.removeprefix(_PREFIX): run for id, run in report.measured.runs.items() if id.startswith(_PREFIX)}
    return {int(gpu): run for gpu, run in found.items() if gpu.isdigit() and isinstance(run, Mapping)}


def _lanes(run: Mapping[str, Any]) -> dict[str, Spans]:
    """`compute`, `copy to GPU` ... -> when its pieces ran; empty for a snapshot from before this was kept."""
    lanes: dict[str, Spans] = {}
    for way in _WAYS:
        timeline = run.get(way, {}).get("timeline", {})
        for name in _KINDS:
            if spans := _spans(timeline.get(name)):
                lanes[f"copy {way}" if name == "copy" else f"compute ({way})"] = spans
    return lanes


def _spans(found: Any) -> Spans:
    return [(float(began), float(ended)) for began, ended in found] if found else []


def _hidden(run: Mapping[str, Any]) -> list[float]:
    return [max(0.0, min(1.0, run[way]["hidden"])) for way in _WAYS if "hidden" in run.get(way, {})] or [0.0]


def _lines(lanes: Mapping[str, Spans]) -> Any:
    places = {name: len(lanes) - number for number, name in enumerate(lanes)}
    longest = max(spans[-1][1] for spans in lanes.values())
    chart = lines(
        height=36 * len(lanes) + 60,
        range=(0.4, len(lanes) + 0.6),
        xrange=(0, longest),
        y_labels=[{"value": place, "label": name} for name, place in places.items()],
        x_value_formatter=lambda milliseconds: f"{milliseconds:g}",
        x_title="milliseconds",
        allow_interruptions=True,
    )
    for name, spans in lanes.items():
        for part in (spans[::2], spans[1::2]):  # in two shades, so that each piece is seen
            edges = [((began, places[name]), (ended, places[name]), (ended, None)) for began, ended in part]
            chart.add("", [point for edge in edges for point in edge])
    return chart
