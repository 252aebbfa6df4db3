"""Charts of a report. A chart without measurements is left out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gpudoctor.model import Report
from gpudoctor.report.html.charts import collectives, grown, history, overlap, peers, roofline, shares, watched
from gpudoctor.report.html.charts.drawing import Chart

# What a snapshot that was cut off or changed by hand makes of a reader; the numbers still stand in the tables.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def charts(report: Report) -> Iterator[Chart]:
    """In the order of display."""
    for of in (watched, shares, roofline, collectives, peers, overlap, history, grown):
        with contextlib.suppress(*_UNREADABLE):
            yield from list(of.charts(report))
