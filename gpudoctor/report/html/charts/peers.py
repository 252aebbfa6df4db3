"""From each GPU to each other one, as a heat map: a table that says its numbers and colours them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.judging.measured.shortfalls import FAIL, WARN, digits
from gpudoctor.model import Figure, Report
from gpudoctor.report import figures
from gpudoctor.report.html.charts.drawing import Cell, Chart, Key, Table

_LEVELS = 6
_MOST_NARROW = 9  # GPUs that fit into half of the page
Pairs = dict[tuple[int, int], Figure]


def charts(report: Report) -> Iterator[Chart]:
    for number, (what, pairs) in enumerate(_matrices(report).items()):
        first = next(iter(pairs.values()))
        kinds = {pair: _kind(figure) for pair, figure in pairs.items()}
        stronger = "the longer it takes" if first.unit == "µs" else "the faster"
        about = f"{first.unit} from the GPU of a row to the GPU of a column; the stronger the colour, {stronger}."
        found = {kind for kind in kinds.values() if kind}
        keys = [Key("warn", f"below {WARN:.0%} of what joins them"), Key("fail", f"below {FAIL:.0%}, or damaged data (✗)")]
        yield Chart(
            f"peers-{number}",
            what,
            about + _expected(pairs),
            table=_table(pairs, kinds),
            keys=tuple(key for key in keys if key.kind in found),
            wide=len(pairs) > _MOST_NARROW * (_MOST_NARROW - 1),
        )


def _matrices(report: Report) -> dict[str, Pairs]:
    """`Copy GPU to GPU` ... -> sender and receiver -> what was measured."""
    found: dict[str, Pairs] = {}
    for figure in (figure for each in report.measured.figures.values() for figure in each):
        pair = figures.PAIR.match(figure.what)
        if pair and pair["way"] == "to":
            what = f"{pair['before']}from GPU to GPU{pair['after']}"
            found.setdefault(what[:1].upper() + what[1:], {})[int(pair["one"]), int(pair["other"])] = figure
    return found


def _expected(pairs: Pairs) -> str:
    healthy = {digits(figure.expected): figure.rule for figure in pairs.values() if figure.expected}
    return "".join(f" Expected: {value} ({rule})." for value, rule in healthy.items()) if len(healthy) == 1 else ""


def _kind(figure: Figure) -> str:
    if figure.wrong or (figure.share is not None and figure.share < FAIL):
        return "fail"
    return "warn" if figure.share is not None and figure.share < WARN else ""


def _table(pairs: Pairs, kinds: Mapping[tuple[int, int], str]) -> Table:
    indices = sorted({index for pair in pairs for index in pair})
    most = max(figure.value for figure in pairs.values()) or 1.0
    rows = tuple(
        (Cell(f"GPU {one}"), *(_cell(pairs.get((one, other)), kinds.get((one, other), ""), most) for other in indices))
        for one in indices
    )
    return Table(("from ↓ to →", *map(str, indices)), rows)


def _cell(figure: Figure | None, kind: str, most: float) -> Cell:
    if figure is None:
        return Cell("–", "none")
    level = f"level-{round(_LEVELS * max(0.0, figure.value) / most)}"
    return Cell(digits(figure.value) + (" ✗" if figure.wrong else ""), kind or level, figure.wrong or figure.rule)
