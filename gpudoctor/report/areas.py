"""The checks at a terminal: a line for each status, or a line for each check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpudoctor.model import Report, Result, Skip, Status
from gpudoctor.report import figures, words
from gpudoctor.report.layout import Lines, Page, signed

_DETAIL = " " * 4
_STATUS, _AREA = 11, 22  # where the columns end
_FOUND = (Status.FAIL, Status.ERROR, Status.WARN)
_HARMLESS = (Skip.NOT_APPLICABLE, Skip.UNSUPPORTED)  # reasons for a skip that hide nothing
_NAMED = 2  # most skipped checks of an area that are named
_ORDER = (*_FOUND, Status.BLOCKED, Status.PASS, Status.SKIP)


def in_short(page: Page, report: Report, leave_out_blocked: bool = False) -> Lines:
    """Areas by status, with what found something or could not look, and the messages of checks that stopped with an error."""
    areas = words.areas(report)
    for status in _ORDER:
        if leave_out_blocked and status is Status.BLOCKED:
            continue
        said = ", ".join(_named(area, results) for area, results in areas.items() if words.worst(results) is status)
        if said:
            start = f"{words.label(status):<{_STATUS}}"
            yield from signed(status, page.wrap(said + _blocked_by(status, areas), start, " " * _STATUS))
    for result in (result for results in areas.values() for result in results if result.status is Status.ERROR):
        yield from signed(Status.ERROR, page.wrap(result.message, f"{words.SIGNS[Status.ERROR]} {result.id}: ", _DETAIL))


def _named(area: str, results: Sequence[Result]) -> str:
    found = ", ".join(result.id for result in results if result.status in _FOUND)
    skipped = [result.id for result in results if result.status is Status.SKIP and result.reason not in _HARMLESS]
    unseen = f"{len(skipped)} skipped" if len(skipped) > _NAMED else f"skipped: {', '.join(skipped)}" if skipped else ""
    notes = "; ".join(filter(None, (found, unseen)))
    return f"{area} ({notes})" if notes else area


def _blocked_by(status: Status, areas: Mapping[str, Sequence[Result]]) -> str:
    if status is not Status.BLOCKED:
        return ""
    return " by " + " and ".join(words.blocked(result for results in areas.values() for result in results))


def in_full(page: Page, report: Report) -> Lines:
    """Every check, in its area."""
    telling = figures.telling(report)
    for area, results in words.areas(report).items():
        status = words.worst(results)
        start = f"{words.label(status):<{_STATUS}}{area:<{_AREA - _STATUS}}"
        yield from signed(status, page.wrap(_summary(status, results), start, " " * _AREA))
        yield from _every_check(page, sorted(results, key=lambda result: result.id not in telling))


def _summary(status: Status, results: Sequence[Result]) -> str:
    return "not applicable" if words.does_not_apply(results) else words.counts(results)


def _every_check(page: Page, results: Iterable[Result]) -> Lines:
    results = list(results)
    longest = max(len(result.id) for result in results)
    timed = any(result.seconds for result in results)
    for result in results:
        seconds = (f"{result.seconds:6.2f} s  " if result.seconds else " " * 10) if timed else ""
        start = f"{_DETAIL}{words.label(result.status):<{_STATUS}}{result.id:<{longest}}  {seconds}"
        yield from signed(result.status, page.wrap(_said(result), start, _DETAIL * 4))


def _said(result: Result) -> str:
    if result.status is Status.BLOCKED:
        return f"by {result.blocked_by}"
    if result.status is Status.SKIP and result.reason and result.reason not in result.message:
        return f"{result.reason}: {result.message}"
    return result.message
