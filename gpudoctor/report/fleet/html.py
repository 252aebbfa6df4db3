"""A fleet as one page: groups, a heat map of nodes, GPUs and figures, a table that sorts, and a section for each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from markupsafe import Markup

from gpudoctor.fleet.model import TITLES, Fleet, Measured, Node, State
from gpudoctor.judging.measured.shortfalls import digits
from gpudoctor.model import Status
from gpudoctor.report.fleet import text
from gpudoctor.report.html import page

MOST_FIGURES = 24  # that can be chosen in the heat map
MOST_DIFFERENCES = 40  # of one node
PERMILLE = 1000
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)  # of the median: a colour each
Figure = tuple[str, str]


def render(fleet: Fleet, pages: Mapping[str, str] | None = None) -> str:
    """pages: name of a node -> the path of its page."""
    figures = chosen(fleet.nodes)
    gpus = max((node.expected_gpus or 0 for node in fleet.nodes), default=0)
    rows = [_row(node, figures, gpus) for node in fleet.nodes]
    return page.made(
        "fleet.html",
        "fleet.js",
        fleet=fleet,
        status=fleet.status,
        headline=text.headline(fleet),
        kinds=[text.about_kind(kind) for kind in fleet.kinds],
        told=lambda group: list(text.told(group, all=len(group.items) <= MOST_DIFFERENCES, hint="see the JSON report")),
        lost=text.lost,
        figures=[f"{what} ({unit})" for what, unit in figures],
        gpus=range(gpus),
        rows=rows,
        sections=[node for node in fleet.nodes if differs(node)],
        has_section=differs,
        titles=TITLES,
        most=MOST_DIFFERENCES,
        digits=digits,
        data=_data(rows),
        pages={name: quote(path) for name, path in (pages or {}).items()},
        cells=lambda row: list(cells(row)),
        sign=_sign,
    )


def chosen(nodes: Sequence[Node]) -> list[Figure]:
    """The figures that most GPUs have, those with outliers first."""
    counts: Counter[Figure] = Counter()
    low: Counter[Figure] = Counter()
    for figure in (figure for node in nodes for figure in node.figures if figure.gpu is not None):
        counts[figure.what, figure.unit] += 1
        low[figure.what, figure.unit] += figure.of_median is not None and figure.of_median < LEVELS[5]
    ordered = sorted(counts, key=lambda figure: (-low[figure], -counts[figure], figure))
    return ordered[:MOST_FIGURES]


def _row(node: Node, figures: Sequence[Figure], gpus: int) -> dict[str, Any]:
    """shares: for each figure and GPU in permille of the median, 0 if it was not measured."""
    of_figure: dict[tuple[str, str, int | None], Measured] = {(each.what, each.unit, each.gpu): each for each in node.figures}
    shares = [[_permille(of_figure.get((what, unit, gpu))) for gpu in range(gpus)] for what, unit in figures]
    return {"node": node, "shares": shares, "lost": set(node.lost), "said": _said(node)}


def _permille(figure: Measured | None) -> int:
    if figure is None or figure.of_median is None:
        return 0
    return max(1, min(round(figure.of_median * PERMILLE), 9999))


def _said(node: Node) -> str:
    """One line about a node."""
    parts = [TITLES[node.state]] if node.state is not State.ANSWERED else []
    parts += list(dict.fromkeys(problem.title for problem in node.problems))
    parts += [f"{each.what} {each.value}" for each in node.differences if each.kind != "setting"]
    return "; ".join(parts[:3]) + (f" and {len(parts) - 3} more" if len(parts) > 3 else "")


def differs(node: Node) -> bool:
    """Whether there is something to tell about it."""
    return bool(node.problems or node.differences) or node.state is not State.ANSWERED


def _sign(node: Node) -> Status:
    return Status.FAIL if node.is_bad else node.status if node.status in (Status.WARN, Status.FAIL) else Status.PASS


def _data(rows: Sequence[dict[str, Any]]) -> Markup:
    """The shares for the script: of each node a list of figures, of each figure a list of GPUs. Numbers only."""
    return Markup(msgspec.json.encode([row["shares"] for row in rows]).decode())


def level(permille: int) -> int:
    """The colour of a share, 0 to 8; the script has the same."""
    return sum(permille >= share * PERMILLE for share in LEVELS)


def cells(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Class and text of each GPU's cell for the first figure."""
    for gpu, permille in enumerate(row["shares"][0] if row["shares"] else ()):
        if gpu in row["lost"]:
            yield "lost", "✗"
        else:
            yield (f"h{level(permille)}", str(round(permille / 10))) if permille else ("", "")
