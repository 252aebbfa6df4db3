"""What failed before and its status now, for a terminal and for a ticket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
from rich.text import Text

from gpudoctor.model import Report, Result, Skip, Status
from gpudoctor.report import heading, markdown, words
from gpudoctor.report.diagnosis import diagnosis
from gpudoctor.report.json import CHOICE, INTERNAL, hide
from gpudoctor.report.layout import Lines, Page, signed

SCHEMA = "gpudoctor.verify/1"
_UNSEEN = (Status.SKIP, Status.BLOCKED, Status.ERROR)


@dataclass(frozen=True)
class Verified:
    """before: the results of `then` that did not pass. after: the same checks now, by id. gone: checks that no longer exist."""

    name: str
    then: Report
    before: tuple[Result, ...]
    after: dict[str, Result]
    gone: tuple[str, ...]
    now: Report

    @property
    def is_well(self) -> bool:
        """Whether every check ran again and passed. A check that could not run proves nothing."""
        return not self.gone and all(_is_well(*pair) for pair in _pairs(self))

    @property
    def verdict(self) -> str:
        """How many are fixed; checks that were and still are blocked are only counted."""
        seen = [pair for pair in _pairs(self) if not _waits(*pair)]
        well = sum(_is_well(*pair) for pair in seen)
        unseen = sum(after.status in _UNSEEN and not _is_well(before, after) for before, after in seen)
        waiting = len(list(_pairs(self))) - len(seen)
        said = f"{well} of {len(seen)} fixed"
        said += f"; {unseen} could not be checked again" if unseen else ""
        said += f"; {len(self.gone)} from checks that no longer exist" if self.gone else ""
        return said + (f"; {waiting} check{'s' * (waiting > 1)} still blocked." if waiting else ".")


_OF_HOST = " (host)"


def with_host(report: Report) -> tuple[Result, ...]:
    """All results. Ids of a container's host get a suffix."""
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
        yield from page.paragraph(f"{name}: this check does not exist in this version of gpudoctor", "  ", "  ")
    yield Text()
    yield Text(verified.verdict, "bold")
    if verified.now.diagnosis:
        yield Text()
        yield from diagnosis(page, verified.now)


def _is_well(before: Result, after: Result) -> bool:
    """A check that was blocked and now does not apply counts as fixed."""
    waited = before.status is Status.BLOCKED
    return after.status is Status.PASS or (waited and after.status is Status.SKIP and after.reason == Skip.NOT_APPLICABLE)


def _told(verified: Verified) -> Iterator[tuple[Result, Result]]:
    yield from (pair for pair in _pairs(verified) if not _waits(*pair))


def _waits(before: Result, after: Result) -> bool:
    """Whether it was blocked then and is blocked now."""
    return before.status is after.status is Status.BLOCKED


def _pairs(verified: Verified) -> Iterator[tuple[Result, Result]]:
    for before in verified.before:
        if before.id in verified.after:
            yield before, verified.after[before.id]


def as_json(verified: Verified) -> str:
    """after: null for a check that this version does not have."""
    now = msgspec.to_builtins(verified.now, enc_hook=str, str_keys=True)
    hide(now["diagnosis"], (*CHOICE, *INTERNAL))
    after = {id: (result.status.value, result.message) for id, result in verified.after.items()}
    checks = [
        {"id": result.id, "before": result.status.value, "after": status, "message": message}
        for result in verified.before
        for status, message in (after.get(result.id, (None, "")),)
    ]
    made = {
        "schema": SCHEMA,
        "report": verified.name,
        "fixed": verified.is_well,
        "verdict": verified.verdict,
        "target": now["target"],
        "checks": checks,
        "diagnosis": now["diagnosis"],
    }
    return msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n"


def as_markdown(verified: Verified) -> str:
    """A section to append to a ticket."""
    lines = ["", "### Before and after", "", "| Before | After | Check | Result now |", "|---|---|---|---|"]
    for before, after in _told(verified):
        row = (words.label(before.status), words.label(after.status), markdown.code(after.id), markdown.text(after.message))
        lines.append(f"| {' | '.join(row)} |")
    taken = verified.now.target.get("taken", "")
    said = f"{verified.verdict} gpudoctor {heading.version(verified.now)}, {taken}"
    return "\n".join([*lines, "", markdown.text(said), ""])
