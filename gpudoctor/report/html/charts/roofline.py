"""The roofline of each kind of GPU: what its memory and its arithmetic allow, and where our measurements lie below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpudoctor import knowledge
from gpudoctor.judging.measured.shortfalls import digits
from gpudoctor.model import Figure, Report
from gpudoctor.report.html.charts.drawing import Cell, Chart, Key, Table, drawn, lines, mark, ticks

_ELEMENT_BYTES = {"fp64": 24, "fp32": 12, "tf32": 12, "fp16": 6, "bf16": 6, "fp8": 4}  # two factors and the product
_OPERATIONS_PER_BYTE = {"saxpy": 2 / 12, "triad": 2 / 12, "read": 1 / 4}  # of fp32; copies compute nothing
_LEFT, _RIGHT = 0.1, 10_000_000.0  # operations per byte; on the right is room for names
_GIGA_PER_TERA = 1e3


@dataclass(frozen=True)
class Point:
    """A measurement: operations per byte, and TFLOP/s."""

    gpu: int
    name: str
    intensity: float
    tflops: float
    kind: str


@dataclass(frozen=True)
class Roof:
    """rates: dtype -> TFLOP/s. gb_per_s: of the memory."""

    rates: dict[str, float]
    gb_per_s: float
    rule: str


def charts(report: Report) -> Iterator[Chart]:
    models: dict[str, list[int]] = {}
    for gpu, name in _names(report).items():
        models.setdefault(name, []).append(gpu)
    for number, (name, gpus) in enumerate(models.items()):
        points = [point for gpu in gpus for point in _points(report, gpu)]
        roof = _roof(report, name, gpus)
        if roof and {point.kind for point in points} >= {"compute", "memory"}:
            yield _chart(number, name, points, roof, len(gpus))


def _names(report: Report) -> dict[int, str]:
    """Of each GPU that was measured."""
    known = {gpu.get("index"): str(gpu.get("name", "GPU")) for gpu in report.facts.get("gpus", ())}
    measured = {figure.gpu for figure in report.measured.figures.get("gemm", ()) if figure.gpu is not None}
    return {gpu: known.get(gpu, "GPU") for gpu in sorted(measured)}


def _points(report: Report, gpu: int) -> Iterator[Point]:
    run = report.measured.runs.get(f"gemm:gpu{gpu}", {})
    for figure in _figures(report, "gemm", gpu):
        dtype = figure.what.removeprefix("GEMM ").partition(" ")[0]
        result = run.get(dtype) if isinstance(run, Mapping) else None
        size = result.get("size") if isinstance(result, Mapping) else None
        if dtype in _ELEMENT_BYTES and size and figure.value:
            yield Point(gpu, f"GEMM {dtype}, {size} × {size}", 2 * size / _ELEMENT_BYTES[dtype], figure.value, "compute")
    for figure in _figures(report, "memory-bandwidth", gpu):
        name = figure.what.removeprefix("memory ")
        if intensity := _OPERATIONS_PER_BYTE.get(name):
            yield Point(gpu, f"memory {name}", intensity, figure.value * intensity / _GIGA_PER_TERA, "memory")


def _figures(report: Report, check: str, gpu: int) -> list[Figure]:
    """Those that were right."""
    return [figure for figure in report.measured.figures.get(check, ()) if figure.gpu == gpu and not figure.wrong]


def _roof(report: Report, name: str, gpus: list[int]) -> Roof | None:
    """The datasheet; of a GPU in no table what a healthy one reaches."""
    board = knowledge.gpu_by_name(name)
    gemm, memory = _figures(report, "gemm", gpus[0]), _figures(report, "memory-bandwidth", gpus[0])
    dtypes = [figure.what.removeprefix("GEMM ") for figure in gemm if figure.what.removeprefix("GEMM ") in _ELEMENT_BYTES]
    if board:
        peaks = {dtype: getattr(board.peak_tflops, dtype) for dtype in dtypes}
        peaks |= {"fp64": board.peak_tflops.fp64_tensor or board.peak_tflops.fp64} if "fp64" in peaks else {}
        rates = {dtype: float(rate) for dtype, rate in peaks.items() if rate}
        return Roof(rates, board.memory_gb_per_s, "The roof is from the datasheet.") if rates else None
    rates = {figure.what.removeprefix("GEMM "): figure.expected for figure in gemm if figure.expected}
    speeds = [figure.expected for figure in memory if figure.expected]
    return Roof(rates, speeds[0], "The roof is the expected value.") if rates and speeds else None


def _chart(number: int, name: str, points: list[Point], roof: Roof, count: int) -> Chart:
    title = "Roofline" + (f" of {count} × {name}" if count > 1 else f" of {name}")
    about = f"TFLOP/s by operations per byte of memory traffic. {roof.rule}"
    edges = _edges(points)
    about += " Each measurement shows the slowest and the fastest GPU." if count > 1 else ""
    rows = tuple(
        (Cell(low.name), Cell(digits(low.intensity)), *(Cell(digits(point.tflops), about=_says(point)) for point in (low, high)))
        for low, high in edges
    )
    table = Table(("Measurement", "Operations per byte", "TFLOP/s, lowest", "Highest"), rows)
    shown = [point for pair in edges for point in dict.fromkeys(pair)]
    keys = (Key("compute", "matrix products"), Key("memory", "memory kernels"), Key("roof", "hardware limit"))
    kinds = ("compute", "memory", *("roof" for _ in _levels(roof)))
    return Chart(f"roofline-{number}", title, about, drawn(_lines(shown, roof), title, kinds), table, keys)


def _edges(points: list[Point]) -> list[tuple[Point, Point]]:
    """Of each measurement the GPU that is slowest and the one that is fastest."""
    names: dict[str, list[Point]] = {}
    for point in points:
        names.setdefault(point.name, []).append(point)
    return [(min(found, key=_tflops), max(found, key=_tflops)) for found in names.values()]


def _tflops(point: Point) -> float:
    return point.tflops


def _levels(roof: Roof) -> dict[float, str]:
    """Rate -> the dtypes that have it."""
    levels: dict[float, list[str]] = {}
    for dtype, rate in roof.rates.items():
        levels.setdefault(rate, []).append(dtype)
    return {rate: ", ".join(names) for rate, names in sorted(levels.items())}


def _lines(points: list[Point], roof: Roof) -> Any:
    slope = roof.gb_per_s / _GIGA_PER_TERA
    bottom = min(slope * _LEFT, *(point.tflops for point in points)) / 2
    chart = lines(
        logarithmic=True,
        range=(bottom, 2.5 * max(roof.rates.values())),
        xrange=(_LEFT, _RIGHT),
        height=330,
        x_labels=ticks({10.0**power: f"{10.0**power:g}" for power in range(-1, 6, 2)}),
        y_labels=[10.0**power for power in range(-1, 5) if bottom < 10.0**power < 3 * max(roof.rates.values())],
        value_formatter=digits,
        x_title="operations per byte",
        print_labels=True,
    )
    for kind in ("compute", "memory"):
        marks = [mark((point.intensity, point.tflops), _says(point), kind) for point in points if point.kind == kind]
        chart.add("", marks, show_dots=True, dots_size=5, stroke=False)
    for number, (rate, names) in enumerate(_levels(roof).items()):
        start = [(_LEFT, slope * _LEFT)] if number == len(_levels(roof)) - 1 else []
        end = mark((_RIGHT, rate), f"{names}: {digits(rate)} TFLOP/s", "end", label=f"{names} {digits(rate)}")
        chart.add("", [*start, (rate / slope, rate), end], show_dots=True, dots_size=0)
    return chart


def _says(point: Point) -> str:
    return f"GPU {point.gpu}, {point.name}: {digits(point.tflops)} TFLOP/s"
