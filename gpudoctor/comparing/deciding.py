"""Finds the differences that decide: with the other machine's answer, is the problem gone?

Judging is pure, so this can be tried instead of guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gpudoctor import catalog, doctor
from gpudoctor.comparing import parts
from gpudoctor.facts import Facts
from gpudoctor.model import Check, Diagnosis, Reply, Snapshot, Status

HOST = "host:"  # prefix of a question to the host of a container
MOST_PLACES, MOST_PROBLEMS = 500, 8
_JUDGED = (Status.PASS, Status.WARN, Status.FAIL)
Place = tuple[str, str]  # a question and a part of its reply


class _Listening(dict[str, Reply]):
    """Replies that record which of them were read."""

    def __init__(self, replies: Mapping[str, Reply]) -> None:
        super().__init__(replies)
        self.read: set[str] = set()

    def __getitem__(self, question: str) -> Reply:
        self.read.add(question)
        return super().__getitem__(question)


def read_by(check: Check, taken: Snapshot) -> set[str]:
    """The questions whose replies this check read."""
    replies = _Listening(taken.replies)
    facts = Facts(replace(taken, replies=replies))
    try:
        for _ in check.judge(facts):
            pass
    except Exception:  # a missing fact, or a bug, which the report shows: what was read before counts
        pass
    return replies.read


def decided(worse: Snapshot, better: Snapshot, places: list[Place], problems: list[Diagnosis]) -> dict[Place, tuple[str, ...]]:
    """Place -> the problems that it decides: the fewest places at which the better machine's answers make a problem go away.

    places: where the two differ, the likeliest first; if several would suffice, the first is used.
    """
    found: dict[Place, tuple[str, ...]] = {}
    for entry in problems[:MOST_PROBLEMS]:
        checks = doctor.select(catalog.checks(), "full", [entry.check])

        def is_gone(chosen: list[Place], entry: Diagnosis = entry, checks: dict[str, Check] = checks) -> bool:
            return _is_gone(_mixed(worse, better, chosen), entry, checks)

        for place in _fewest(places[:MOST_PLACES], is_gone):
            found[place] = (*found.get(place, ()), entry.problem)
    return found


def _fewest(places: list[Place], is_enough: Callable[[list[Place]], bool]) -> list[Place]:
    """Delta debugging: removes ever smaller runs of places, the unlikeliest first, while the rest still suffices."""
    if not places or not is_enough(places):
        return []
    size = len(places)
    while size := size // 2:
        end = len(places)
        while end > 0:
            rest = places[: max(end - size, 0)] + places[end:]
            if rest and is_enough(rest):
                places = rest
            end -= size
    return places


def _mixed(worse: Snapshot, better: Snapshot, chosen: list[Place]) -> Snapshot:
    here = [place for place in chosen if not place[0].startswith(HOST)]
    on_host = [(question.removeprefix(HOST), part) for question, part in chosen if question.startswith(HOST)]
    return replace(
        worse,
        replies=_exchanged(worse.replies, better.replies, here),
        host=_exchanged(worse.host, better.host, on_host),
    )


def _exchanged(worse: Mapping[str, Reply], better: Mapping[str, Reply], chosen: list[Place]) -> dict[str, Reply]:
    replies = dict(worse)
    for question, part in chosen:
        if question not in better:
            replies.pop(question, None)
        elif question not in replies:
            replies[question] = better[question]
        else:
            replies[question] = parts.exchanged(replies[question], part, better[question])
    return replies


def _is_gone(mixed: Snapshot, entry: Diagnosis, checks: dict[str, Check]) -> bool:
    """True only if the check could still judge: a mixture can be inconsistent."""
    try:
        report = doctor.judge(mixed, checks)
    except Exception:  # no real machine answers like that
        return False
    results = report.host if entry.on_host else report.checks
    judged = {result.id for result in results if result.status in _JUDGED}
    return entry.check in judged and name_of(entry) not in set(map(name_of, report.diagnosis))


def name_of(entry: Diagnosis) -> tuple[str, int | None, bool]:
    """The identity of a finding."""
    return entry.problem, entry.gpu, entry.on_host
