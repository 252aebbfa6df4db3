"""The figures as rows of a table. A figure of several GPUs is one row with the range of its values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from gpudoctor.judging.measured.shortfalls import digits
from gpudoctor.model import Figure, Model, Report
from gpudoctor.plain import plain

PAIR = re.compile(
    r"(?P<before>.*) GPU \  (?P<one>\d{1,3}) \  (?P<way>to|and) \  (?P<other>\d{1,3}) (?P<after>(?!\d).*)",
    re.VERBOSE,
)
HEADINGS = ("Measured", "Value", "Unit", "Expected", "% of expected")
Row = tuple[str, ...]
LEAST = "Lower bound on time per token (batch size 1), from the measured memory bandwidth:"
MOST = (
    "Upper bound on tokens/s by batch size, with 2048 tokens of context per answer, and the batch size from which short answers "
    "are bound by compute, from measured memory and matrix products:"
)
CACHE = "KV cache of one answer in GB (fp16) by context length, and the tokens that fit next to the weights:"


def rows(report: Report, all: bool = False) -> list[Row]:
    """One row per figure; without `all` only those with an expected value. All pairs of GPUs are one row."""
    figures = [figure for each in report.measured.figures.values() for figure in each]
    ordered: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures:
        ordered.setdefault((_of_all_pairs(figure.what), figure.unit), []).append(figure)
    return [_row(what, found) for (what, _), found in ordered.items() if all or any(figure.expected for figure in found)]


def _of_all_pairs(what: str) -> str:
    """`copy GPU 0 to 1, 4 B` is `copy GPU to GPU, 4 B`."""
    pair = PAIR.match(what)
    return f"{pair['before']}GPU {pair['way']} GPU{pair['after']}" if pair else what


def matrices(report: Report) -> Iterator[tuple[str, list[Row]]]:
    """The figures of pairs of GPUs: for each a title with the unit and a table, one row per source GPU."""
    found: dict[str, dict[tuple[int, int], str]] = {}
    for figure in (figure for each in report.measured.figures.values() for figure in each):
        pair = PAIR.match(figure.what)
        if pair and pair["way"] == "to":
            title = f"{_of_all_pairs(figure.what)} ({figure.unit})"
            found.setdefault(title, {})[int(pair["one"]), int(pair["other"])] = digits(figure.value)
    for title, cells in found.items():
        indices = sorted({index for pair in cells for index in pair})
        rows = [(f"GPU {one}", *(cells.get((one, other), "-") for other in indices)) for one in indices]
        yield title, [("", *(f"GPU {other}" for other in indices)), *rows]


def telling(report: Report) -> set[str]:
    """The checks with figures that have an expected value."""
    return {id for id, each in report.measured.figures.items() if any(figure.expected for figure in each)}


def judged_by_itself(report: Report) -> str:
    """A note on GPUs without an entry in the tables; "" if every GPU has one."""
    if not any(figure.unlisted for each in report.measured.figures.values() for figure in each):
        return ""
    return "This GPU is not in the tables: expected values come from its own clocks and bus widths, less strict than a datasheet."


def _row(what: str, figures: Sequence[Figure]) -> Row:
    first = figures[0]
    values = [figure.value for figure in figures]
    shares = [figure.share for figure in figures if figure.share is not None]
    expected = max((figure.expected for figure in figures if figure.expected), default=None)
    healthy = "" if expected is None else f"under {digits(expected)}" if first.less_is_better else digits(expected)
    share = f"{min(shares):.0%}" if shares and not first.less_is_better else ""
    return what, _range(values), first.unit, healthy, share


def _range(values: Sequence[float]) -> str:
    low, high = digits(min(values)), digits(max(values))
    return low if low == high else f"{low}–{high}"


def models(report: Report) -> Iterator[Row]:
    """One row per model size, one column per precision; sizes that do not fit at all are left out."""
    precisions = _precisions(report)
    for size, found in groupby(report.measured.models, lambda model: model.size):
        each = {model.precision: model for model in found}
        if any(model.gpus for model in each.values()):
            yield (plain(size), *(_model(each[precision]) if precision in each else "" for precision in precisions))


def model_headings(report: Report) -> Row:
    return ("Model", *map(plain, _precisions(report)))


def _precisions(report: Report) -> list[str]:
    return list(dict.fromkeys(model.precision for model in report.measured.models))


def _model(model: Model) -> str:
    if model.gpus is None:
        return "does not fit"
    on = f" on {model.gpus} GPUs" if model.gpus > 1 else ""
    return f"{digits(model.least_milliseconds or 0)} ms{on}"


def about_models(report: Report) -> list[tuple[str, list[Row]]]:
    """Tables with their headings and titles; the first is what reports without details show."""
    rows = list(models(report))
    tables = [(LEAST, [model_headings(report), *rows] if rows else []), (MOST, throughput(report)), (CACHE, contexts(report))]
    return [(title, table) for title, table in tables if table]


def throughput(report: Report) -> list[Row]:
    """The most tokens/s by batch size: a heading, then one row per model and precision that fits; empty if not measured."""
    found = [model for model in report.measured.models if model.gpus and model.tokens_per_second]
    if not found:
        return []
    rows = [
        (
            f"{plain(model.size)} {plain(model.precision)}",
            *("-" if tokens is None else f"{tokens:.0f}" for tokens in model.tokens_per_second.values()),
            "" if model.compute_bound_batch is None else str(model.compute_bound_batch),
        )
        for model in found
    ]
    batches = (f"batch {plain(batch)}" for batch in found[0].tokens_per_second)
    return [("Model", *batches, "compute-bound from"), *rows]


def contexts(report: Report) -> list[Row]:
    """GB of the KV cache of an answer by its length, and the tokens that fit: a heading, then one row per model and precision."""
    found = [model for model in report.measured.models if model.gpus and model.kv_gigabytes]
    if not found:
        return []
    rows = [
        (
            f"{plain(model.size)} {plain(model.precision)}",
            *(digits(gigabytes) for gigabytes in model.kv_gigabytes.values()),
            "" if model.longest_context is None else f"{model.longest_context:,}",
        )
        for model in found
    ]
    return [("Model", *map(_thousands, found[0].kv_gigabytes), "fits, in tokens"), *rows]


def _thousands(tokens: str) -> str:
    return f"{int(tokens) // 1024}k" if tokens.isdecimal() else plain(tokens)


def columns(table: Iterable[Row]) -> list[str]:
    """The rows as lines with aligned columns."""
    rows = list(table)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
