"""Compares two machines, or two days of one: the differences, starting with the one that most likely explains the worse
verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gpudoctor.comparing import deciding, noise, parts, same_machine, topics
from gpudoctor.comparing.deciding import HOST, name_of
from gpudoctor.facts import Facts, counters
from gpudoctor.facts.counters import Counters
from gpudoctor.judging import trends
from gpudoctor.judging.trends import Rate
from gpudoctor.model import Check, Diagnosis, Figure, Opened, Reply, Report, Snapshot, Status

_WORST = (Status.PASS, Status.SKIP, Status.WARN, Status.FAIL)
ABSENT = "absent"
NOTICEABLE = 0.05  # relative difference of a figure that two runs of one machine do not reach


@dataclass(frozen=True)
class Change:
    """One thing that differs. decides: problems that would be gone if the worse machine had the better one's value.

    read: whether the check of such a problem read it. is_noise: it differs between any two machines.
    """

    question: str
    part: str
    one: Any
    other: Any
    decides: tuple[str, ...] = ()
    read: bool = False
    is_noise: bool = False


@dataclass(frozen=True)
class Measured:
    """A figure on both sides; `ratio` is the second divided by the first."""

    one: Figure
    other: Figure
    ratio: float


@dataclass(frozen=True)
class Comparison:
    """verdicts: skip if nothing could be examined. worse: 0 or 1, which of the two is worse; None if they are equal.

    rates: of the error counters that rose from the earlier to the later, of GPUs that both have.
    """

    verdicts: tuple[Status, Status]
    worse: int | None
    only: tuple[tuple[Diagnosis, ...], tuple[Diagnosis, ...]]
    both: tuple[Diagnosis, ...]
    changes: tuple[Change, ...]
    figures: tuple[Measured, ...]
    rates: tuple[Rate, ...] = ()

    @property
    def is_same(self) -> bool:
        telling = [change for change in self.changes if not change.is_noise]
        rising = [rate for rate in self.rates if rate.limit]
        is_found = self.only[0] or self.only[1] or telling or self.figures or rising
        return not is_found and self.verdicts[0] is self.verdicts[1]


def compare(one: Opened, other: Opened) -> Comparison:
    """Compares the answers and figures of two snapshots; if one side is a report, what both reports contain."""
    only = (_missing(one.report, other.report), _missing(other.report, one.report))
    both = tuple(entry for entry in one.report.diagnosis if name_of(entry) in set(map(name_of, other.report.diagnosis)))
    worse = _worse(one.report, other.report, only)
    if one.taken and other.taken:
        found = _ranked(one.taken, other.taken, worse, only)
    else:
        found = list(_of_reports(one.report, other.report))
    verdicts = one.report.verdict, other.report.verdict
    is_one = not same_machine.difference(one.report, other.report)
    rates = tuple(_rates(one.taken, other.taken)) if is_one and one.taken and other.taken else ()
    return Comparison(verdicts, worse, only, both, tuple(found), tuple(_figures(one.report, other.report)), rates)


def _rates(one: Snapshot, other: Snapshot) -> list[Rate]:
    """Of the counters that rose, from the earlier snapshot to the later one."""
    try:
        earlier, later = sorted((counters.of(Facts(taken)) for taken in (one, other)), key=_time)
    except (ValueError, TypeError):  # one has no GPUs, or a time that cannot be read
        return []
    return [rate for rate in trends.rates(earlier, later) if rate.rose]


def _time(found: Mapping[str, Counters]) -> datetime:
    return min(each.time for each in found.values())


def _missing(report: Report, other: Report) -> tuple[Diagnosis, ...]:
    """The problems that the other report does not have."""
    theirs = set(map(name_of, other.diagnosis))
    return tuple(entry for entry in report.diagnosis if name_of(entry) not in theirs)


def _worse(one: Report, other: Report, only: tuple[tuple[Diagnosis, ...], tuple[Diagnosis, ...]]) -> int | None:
    first, second = (
        (_WORST.index(report.status), sum(entry.status is Status.FAIL for entry in found), len(found))
        for report, found in zip((one, other), only, strict=True)
    )
    return None if first == second else int(second > first)


def _ranked(
    one: Snapshot, other: Snapshot, worse: int | None, only: tuple[tuple[Diagnosis, ...], tuple[Diagnosis, ...]]
) -> list[Change]:
    changes = list(_changes(one, other))
    if worse is None:
        return sorted(changes, key=_rank)
    from gpudoctor import catalog

    bad, good = (other, one) if worse else (one, other)
    problems = list(only[worse])
    checks = catalog.checks()
    read = set().union(*(_read_for(entry, checks[entry.check], bad) for entry in problems if entry.check in checks))
    likely = sorted(changes, key=lambda change: (change.question not in read, change.is_noise, change.question, change.part))
    named = topics.named_by(problems)
    decides = deciding.decided(bad, good, [(change.question, change.part) for change in likely], problems)
    return sorted(
        (
            Change(
                change.question,
                change.part,
                change.one,
                change.other,
                decides.get((change.question, change.part), ()),
                change.question in read,
                change.is_noise and (change.question, change.part) not in decides,
            )
            for change in changes
        ),
        key=lambda change: (
            not change.decides,
            change.is_noise,
            not topics.is_named(change.question, change.part, named),
            *_rank(change),
        ),
    )


def unchecked(entry: Diagnosis, report: Report) -> str:
    """Why the report cannot tell whether its machine has this problem, too; "" if its check ran."""
    rows = [row for row in (report.host if entry.on_host else report.checks) if row.id == entry.check]
    return rows[0].message if rows and rows[0].status in (Status.SKIP, Status.BLOCKED) else ""


def _read_for(entry: Diagnosis, check: Check, taken: Snapshot) -> set[str]:
    """The questions that the check of a problem read, on the side where the problem is."""
    if not entry.on_host:
        return deciding.read_by(check, taken)
    return {HOST + question for question in deciding.read_by(check, replace(taken, replies=taken.host))}


def _rank(change: Change) -> tuple[Any, ...]:
    about = topics.topic(change.question, change.part)
    is_absent = parts.MISSING in (change.one, change.other)
    likely = about == topics.REST, not change.read, about, is_absent
    return not change.decides, change.is_noise, *likely, change.question, change.part


def _changes(one: Snapshot, other: Snapshot) -> Iterator[Change]:
    unasked = Reply(parts.UNASKED)
    for where, first, second in (("", one.replies, other.replies), (HOST, one.host, other.host)):
        for question in sorted({*first, *second}):
            for change in _of_question(question, first.get(question, unasked), second.get(question, unasked)):
                yield replace(change, question=where + question)


def _of_question(question: str, first: Reply, second: Reply) -> Iterator[Change]:
    """If one side was not asked (an older gpudoctor, or a container), the difference does not describe the machine."""
    statuses = {first.status, second.status}
    if statuses == {parts.UNASKED, parts.MISSING}:
        return
    theirs, ours = parts.of(first), parts.of(second)
    if theirs.keys() != ours.keys() and (first.status != "ok" or second.status != "ok"):
        is_noise = bool(statuses & parts.UNANSWERED) or noise.is_noise(question, "")
        yield Change(question, parts.WHOLE, _told(first), _told(second), is_noise=is_noise)
        return
    for part in dict.fromkeys((*theirs, *ours)):
        a, b = theirs.get(part, ABSENT), ours.get(part, ABSENT)
        if a != b:
            is_unasked = ABSENT in (a, b) and noise.has_fields(question)
            yield Change(question, part, a, b, is_noise=is_unasked or noise.is_noise(question, part))


def _told(reply: Reply) -> Any:
    return reply.value if reply.status == "ok" else reply.status


def _of_reports(one: Report, other: Report) -> Iterator[Change]:
    for where, first, second in (("machine", one.target, other.target), ("fact", one.facts, other.facts)):
        theirs, ours = _flat(first), _flat(second)
        for name in dict.fromkeys((*theirs, *ours)):
            a, b = theirs.get(name, ABSENT), ours.get(name, ABSENT)
            if a != b:
                yield Change(where, name, a, b, is_noise=noise.is_noise("", name) or name == "taken")


def _flat(facts: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, dict):
            flat |= {f"{name} {key}": item for key, item in value.items()}
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            flat |= {f"{name} {number} {key}": item for number, each in enumerate(value) for key, item in each.items()}
        else:
            flat[name] = value
    return flat


def _figures(one: Report, other: Report) -> Iterator[Measured]:
    """The figures that differ by more than two runs of one machine do, the largest difference first."""
    theirs = {_of(figure): figure for each in one.measured.figures.values() for figure in each}
    found = []
    for figure in (figure for each in other.measured.figures.values() for figure in each):
        first = theirs.get(_of(figure))
        if first and first.value and abs(figure.value / first.value - 1) > NOTICEABLE:
            found.append(Measured(first, figure, figure.value / first.value))
    yield from sorted(found, key=lambda each: -_distance(each.ratio))


def _distance(ratio: float) -> float:
    """Half as fast and twice as fast are equally distant."""
    return abs(math.log(ratio)) if ratio > 0 else math.inf


def _of(figure: Figure) -> tuple[str, str, int | None]:
    return figure.what, figure.unit, figure.gpu
