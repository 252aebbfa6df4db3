"""From a command that did not work to the verdict: a quick check, the question whether to repeat it, and the repeats."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gpudoctor import screen
from gpudoctor.cli import output, sharing

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.judging.experiments.suspect import Suspect
    from gpudoctor.model import Report, Snapshot
    from gpudoctor.wanted import Wanted
    from gpudoctor.why.case import Case
    from gpudoctor.why.like import Differences
    from gpudoctor.why.search import Search

MOST_NAMES, MOST_OTHERS = 4, 8
NOT_ASKED = "it was not repeated: there is no terminal to ask on (--yes repeats it)"
DECLINED = "it was not repeated, as you wanted"
NO_SUSPECTS = "it was not repeated: nothing that it inherits is suspected"


@dataclass(frozen=True)
class Repeating:
    """yes: repeat without asking. attempts: how many repeats are allowed."""

    yes: bool
    attempts: int


def solved(case: Case, wanted: Wanted, repeating: Repeating, like: Checkup | None) -> tuple[Checkup, int]:
    """The verdict on a command, and the signal (0: none) that interrupted the way to it."""
    from gpudoctor.checkup import Checkup
    from gpudoctor.why import examined

    ended_by = case.ended_by
    answers = examined.described(case)
    try:
        if not ended_by:
            with output.progress() as tell:
                answers = examined.examined(case, wanted, tell, sharing.warn)
            answers, ended_by = _repeated(case, answers, wanted, repeating, like)
    except (KeyboardInterrupt, SystemExit) as end:
        ended_by = _signal_of(end)
    if case.ended_by:
        _note(f"interrupted in its first run, after {case.first.seconds:.1f} s: nothing was examined but its output.")
    elif ended_by:
        screen.note("Interrupted: the report contains what was found until then.")
    return Checkup(snapshot=answers), ended_by


def _signal_of(end: BaseException) -> int:
    code = end.code if isinstance(end, SystemExit) else None
    return code - 128 if isinstance(code, int) and code > 128 else signal.SIGINT


def _repeated(case: Case, answers: Snapshot, wanted: Wanted, repeating: Repeating, like: Checkup | None) -> tuple[Snapshot, int]:
    """The answers with the proof, or with the reason why the command was not repeated."""
    from gpudoctor import doctor
    from gpudoctor.why import examined, parts
    from gpudoctor.why import like as liking
    from gpudoctor.why import search as searching

    if not (repeating.yes or _can_ask()):
        return _left(case, answers, NOT_ASKED), 0
    report = doctor.judge_at_its_level(answers)
    surroundings = examined.inherited(case, wanted, answers)
    found = searching.suspected(case, surroundings, report)
    if like:
        differences = liking.differences(answers, like, found)
        found = differences.suspects
        _list_others(differences)
    if not found:
        return _left(case, answers, NO_SUSPECTS), 0
    left = () if like else parts.parts(surroundings, case.text, report)
    search = searching.Search(case, surroundings, found, repeating.attempts, parts=left)
    if repeating.yes:
        _say(case, search)
    elif not _asked(case, report, search):
        return _left(case, answers, DECLINED), 0
    with output.progress() as tell:
        proof = search.proof(tell)
    return searching.with_proof(answers, proof), search.ended_by


def _list_others(differences: Differences) -> None:
    others = differences.others
    if others:
        _note("these differences cannot be taken away here:")
    for line in others[:MOST_OTHERS]:
        screen.note(f"  {line}")
    if len(others) > MOST_OTHERS:
        screen.note(f"  and {len(others) - MOST_OTHERS} more (gpudoctor diff shows all)")


def _left(case: Case, answers: Snapshot, reason: str) -> Snapshot:
    from gpudoctor.why import examined

    _note(f"the command {case.failure}; {reason}.")
    return examined.not_repeated(case, answers, reason)


def _can_ask() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _asked(case: Case, report: Report, search: Search) -> bool:
    from gpudoctor.report import quiet

    screen.note("")
    screen.note(quiet.render(report).rstrip("\n"))
    _say(case, search)
    try:
        return click.confirm("Repeat it?", default=False, err=True)
    except click.Abort:
        raise KeyboardInterrupt from None


def _say(case: Case, search: Search) -> None:
    """What will be repeated, how often, and without what."""
    after = "" if case.kind in ("hangs", "slow") else f" after {case.first.seconds:.1f} s"
    _note(f"the command {case.failure}{after}.")
    _note(
        f"It is repeated at most {search.attempts} times, with no input and no terminal, without one or more of: "
        f"{_listed(search.asked)}. Whatever it writes, it writes again."
    )
    if search.parts:
        _note(f"If none of them decides, it is also repeated without {_listed(search.parts)}, one at a time.")
    if (longer := case.repeated.longer) is not None:
        _note(f"A repeat that still runs after {longer:.0f} s counts as working and is ended (--until REGEX decides better).")


def _listed(found: Sequence[Suspect]) -> str:
    from gpudoctor.judging.experiments import telling

    names = telling.names_of(found)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _note(line: str) -> None:
    screen.note(f"gpudoctor: {line}")
