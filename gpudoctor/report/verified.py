"""What failed before and how it is now, for a person at a terminal and for a ticket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rich.text import Text

from gpudoctor.model import Report, Result, Skip, Status
from gpudoctor.report import heading, markdown, words
from gpudoctor.report.diagnosis import diagnosis
from gpudoctor.report.layout import Lines, Page, signed

_UNSEEN = (Status.SKIP, Status.BLOCKED, Status.ERROR)


@dataclass(frozen=True)
class Verified:
    """before: the results of `then` that were not well. after: the same checks today, by id; gone: those that are no more."""

    name: str
    then: Report
    before: tuple[Result, ...]
    after: dict[str, Result]
    gone: tuple[str, ...]
    now: Report

    @property
    def is_well(self) -> bool:
        """Whether each was looked at again and is well: a check that could not look has shown nothing."""
        return not self.gone and all(_is_well(*pair) for pair in _pairs(self))

    @property
    def verdict(self) -> str:
        """Of those that only waited for another check, and still do, there is no more to say than how many."""
        seen = [pair for pair in _pairs(self) if not _waits(*pair)]
        well = sum(_is_well(*pair) for pair in seen)
        unseen = sum(after.status in _UNSEEN and not _is_well(before, after) for before, after in seen)
        waiting = len(list(_pairs(self))) - len(seen)
        said = f"{well} of {len(seen)} {'is' if 1 in (well, len(seen)) else 'are'} well now"
        said += f"; {unseen} could not be judged" if unseen else ""
        said += f"; {len(self.gone)} of a check that is no more" if self.gone else ""
        return said + (f"; {waiting} still wait for another." if waiting else ".")


_OF_HOST = " (host)"


def with_host(report: Report) -> tuple[Result, ...]:
    """All results; those of a container's host have ids of their own."""
    return (*report.checks, *(replace(result, id=result.id + _OF_HOST) for result in report.host))


def plain(id: str) -> str:
    return id.removesuffix(_OF_HOST)


def render(verified: Verified, width: int = 80, colours: bool = False, verbose: bool = False) -> str:
    page = Page.fitting(width, verbose)
    return page.printed(_lines(page, verified), colours)


def _lines(page: Page, verified: Verified) -> Lines:
    for said, report in (("Before  ", verified.then), ("Now     ", verified.now)):
        name = f"{verified.name}: " if report is verified.then else ""
        where = f"{heading.system(report)}; {heading.gpus(report)}; Python {heading.python(report)}"
        yield from page.paragraph(f"{name}{where}; taken {report.target.get('taken', 'at an unknown time')}", said, " " * 8)
    yield Text()
    for before, after in _told(verified):
        first = f"{words.label(before.status):<9} → {words.label(after.status):<9} "
        said = f"{after.id}: {after.message}"
        yield from signed(after.status, page.short(said, first, " " * len(first)))
    still = [after for before, after in _pairs(verified) if _waits(before, after)]
    for blocker, waiting in words.blocked(still).items():
        yield from map(Text, page.short(f"still blocked by {blocker}: {', '.join(waiting)}", "  ", "    "))
    for name in verified.gone:
        yield from page.paragraph(f"{name}: this gpudoctor has no such check", "  ", "  ")
    yield Text()
    yield Text(verified.verdict, "bold")
    if verified.now.diagnosis:
        yield Text()
        yield from diagnosis(page, verified.now)


def _is_well(before: Result, after: Result) -> bool:
    """What only waited for another, and then has nothing to look at here, had found nothing and does not now."""
    waited = before.status is Status.BLOCKED
    return after.status is Status.PASS or (waited and after.status is Status.SKIP and after.reason == Skip.NOT_APPLICABLE)


def _told(verified: Verified) -> Iterator[tuple[Result, Result]]:
    yield from (pair for pair in _pairs(verified) if not _waits(*pair))


def _waits(before: Result, after: Result) -> bool:
    """For another check, then and now."""
    return before.status is after.status is Status.BLOCKED


def _pairs(verified: Verified) -> Iterator[tuple[Result, Result]]:
    for before in verified.before:
        if before.id in verified.after:
            yield before, verified.after[before.id]


def as_markdown(verified: Verified) -> str:
    """A section to be appended to a ticket."""
    lines = ["", "### Before and after", "", "| Before | After | Check | What is seen now |", "|---|---|---|---|"]
    for before, after in _told(verified):
        row = (words.label(before.status), words.label(after.status), markdown.code(after.id), markdown.text(after.message))
        lines.append(f"| {' | '.join(row)} |")
    taken = verified.now.target.get("taken", "")
    said = f"{verified.verdict} gpudoctor {heading.version(verified.now)}, {taken}"
    return "\n".join([*lines, "", markdown.text(said), ""])
