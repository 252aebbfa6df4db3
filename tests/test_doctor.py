"""Which checks run, what stands in their way, and what the report says about how much was looked at."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import machine
import pytest
from each import each

from gpudoctor import catalog, doctor
from gpudoctor.errors import UserError
from gpudoctor.facts import Facts
from gpudoctor.facts.replies import Replies
from gpudoctor.facts.system import System
from gpudoctor.fixes import ON_THE_HOST, FixContext, fitting
from gpudoctor.model import (
    Action,
    Cause,
    Check,
    Confidence,
    Figure,
    Finding,
    Fix,
    Problem,
    Reply,
    Report,
    Skip,
    Snapshot,
    Status,
    Unavailable,
    first_cause,
    for_each,
)

BROKEN = Problem("broken", "It is broken", "So it is.", Action.REBOOT, (Fix("Reboot", reboot=True),))
ODD = Problem("odd", "It is odd", "So it is.", Action.WATCH, (Fix("Look at <thing>", "ls -l <thing>"),), status=Status.WARN)


def nothing(facts: Any) -> Iterator[Finding]:
    yield from ()


def broken(facts: Any) -> Iterator[Finding]:
    yield BROKEN.found("one thing is broken")


def partly_broken(facts: Any) -> Iterator[Finding]:
    yield BROKEN.found("GPU 1 is broken", gpu=1, partial=True)


def odd(facts: Any) -> Iterator[Finding]:
    yield ODD.found("it looks odd", {"thing": "/a file; rm -rf /"})


def unreadable(facts: Any) -> Iterator[Finding]:
    raise Unavailable("permission denied", Skip.NOT_PERMITTED)
    yield


def found_then_unreadable(facts: Any) -> Iterator[Finding]:
    yield BROKEN.found("seen before the rest was denied")
    raise Unavailable("permission denied", Skip.NOT_PERMITTED)


def buggy(facts: Any) -> Iterator[Finding]:
    raise KeyError("oops")
    yield


def judged(**judges: Any) -> Report:
    """A report on an empty snapshot: NAME=judge, or NAME=(judge, needs) or (judge, needs, explained_by)."""
    checks = {}
    for name, given in judges.items():
        judge, needs, explained_by = (*given, (), ())[:3] if isinstance(given, tuple) else (given, (), ())
        checks[name] = Check(judge, lambda facts: "well", needs=needs, explained_by=explained_by, id=name, area="machine")
    return doctor.judge(Snapshot("s", "0", "2026-01-01T00:00:00Z", {}), checks)


def statuses(report: Report) -> dict[str, str]:
    return {result.id: result.status.value for result in report.checks}


def test_a_failure_blocks_all_that_stands_on_it_and_is_named_as_the_root() -> None:
    report = judged(root=broken, middle=(nothing, ("root",)), top=(nothing, ("middle",)), apart=nothing)
    assert statuses(report) == {"root": "fail", "middle": "blocked", "top": "blocked", "apart": "pass"}
    assert [result.blocked_by for result in report.checks] == [None, "root", "root", None]
    assert report.diagnosis[0].explains == ("middle", "top")


def test_a_warning_and_a_skip_block_nothing() -> None:
    report = judged(warns=odd, skips=unreadable, top=(nothing, ("warns", "skips")))
    assert statuses(report) == {"warns": "warn", "skips": "skip", "top": "pass"}
    assert report.status is Status.WARN


def test_a_partial_failure_leaves_the_other_gpus_to_be_judged() -> None:
    report = judged(root=partly_broken, health=(nothing, ("root",)), count=(nothing, (), ("root",)))
    assert statuses(report) == {"root": "fail", "health": "pass", "count": "blocked"}
    assert report.diagnosis[0].explains == ("count",)


def test_what_was_found_before_an_answer_was_denied_counts() -> None:
    assert statuses(judged(check=found_then_unreadable)) == {"check": "fail"}


def test_a_bug_is_a_visible_row_and_never_a_pass() -> None:
    report = judged(check=buggy, other=nothing)
    assert statuses(report) == {"check": "error", "other": "pass"}
    assert "KeyError" in report.checks[0].message
    assert report.status is Status.WARN


def test_what_a_machine_called_its_files_does_not_become_a_command() -> None:
    fix = judged(check=odd).diagnosis[0].fixes[0]
    assert fix.command == "ls -l '/a file; rm -rf /'"


def test_coverage_counts_every_way_of_not_looking() -> None:
    def not_here(facts: Any) -> Iterator[Finding]:
        raise Skip("no such thing here")
        yield

    report = judged(a=nothing, b=unreadable, c=not_here, d=broken, e=(nothing, ("d",)))
    assert (report.coverage.ran, report.coverage.applicable) == (2, 4)
    assert report.coverage.skipped == {Skip.NOT_PERMITTED: 1}
    assert report.coverage.sentence.split("; ") == [
        "2 of 4 applicable checks ran",
        "1 skipped for lack of permission (try as root)",
        "1 blocked until the problem above is fixed.",
    ]


def test_only_brings_what_it_needs_and_unknown_names_suggest_the_nearest() -> None:
    checks = {
        "bus": Check(nothing, str, id="bus", area="machine"),
        "driver": Check(nothing, str, needs=("bus",), id="driver", area="machine"),
        "count": Check(nothing, str, explained_by=("driver",), id="count", area="machine"),
        "slow": Check(nothing, str, level="full", id="slow", area="machine"),
    }
    assert set(doctor.select(checks, "quick")) == {"bus", "driver", "count"}
    assert set(doctor.select(checks, "quick", only=["count"])) == {"bus", "driver", "count"}
    assert set(doctor.select(checks, "quick", only=["driver"], skip=["bus"])) == {"driver"}
    with pytest.raises(UserError, match="did you mean driver"):
        doctor.select(checks, "quick", only=["drivr"])


def test_the_first_cause_whose_evidence_is_there_is_confirmed() -> None:
    def denied(facts: Any) -> Finding | None:
        raise Unavailable("the log is closed", Skip.NOT_PERMITTED)

    other = Problem("other", "Other", "Other.", Action.REBOOT)
    otherwise = other.found("something is wrong")
    sure = [*first_cause([Cause(ODD, lambda facts: None), Cause(BROKEN, lambda facts: BROKEN.found("yes"))], None, otherwise)]
    assert [(finding.problem, finding.confidence) for finding in sure] == [(BROKEN, Confidence.CONFIRMED)]
    unsure = [*first_cause([Cause(ODD, lambda facts: None), Cause(BROKEN, denied)], None, otherwise)]
    assert unsure[0].confidence is Confidence.UNKNOWN
    assert unsure[0].evidence == {"ruled_out": ["odd"], "could_not_check": {"broken": "the log is closed"}}


@each(
    ("kinds", "outcome"),
    [
        ([], Skip.NOT_APPLICABLE),
        ([Skip.UNSUPPORTED], Skip.UNSUPPORTED),
        ([None, Skip.UNSUPPORTED], None),
        ([None, Skip.NO_ANSWER], Skip.NO_ANSWER),
        ([None, None], None),
    ],
)
def test_one_gpu_that_could_not_be_read_is_not_healthy(kinds: list[str | None], outcome: str | None) -> None:
    def judge_one(kind: str | None) -> Iterator[Finding]:
        if kind:
            raise Skip("why", kind)
        yield from ()

    if outcome is None:
        assert [*for_each(kinds, judge_one)] == []
    else:
        with pytest.raises(Skip) as caught:
            [*for_each(kinds, judge_one)]
        assert caught.value.kind == outcome


def test_a_container_is_not_told_to_reboot_its_host() -> None:
    fixes = (Fix("Reboot", reboot=True, on=("debian",)), Fix("Set it", "export IT=1"))
    assert [fix.title for fix in fitting(fixes, FixContext(("debian", "host")), {})] == ["Reboot", "Set it"]
    assert fitting(fixes, FixContext(("debian", "container")), {}) == (fixes[1], ON_THE_HOST)


def test_root_in_a_container_needs_no_sudo() -> None:
    fixes = (Fix("Install it", "sudo apt install it", needs=("root",)),)
    [inside] = fitting(fixes, FixContext(("debian", "container")), {"is_root": True})
    assert (inside.command, inside.needs) == ("apt install it", ())
    on_the_host = (Fix("Allow it", "sudo setsebool -P it 1", needs=("root",), where="host"),)
    assert fitting(on_the_host, FixContext(("debian", "container")), {"is_root": True}) == on_the_host
    [outside] = fitting(fixes, FixContext(("debian", "host")), {"is_root": True})
    assert (outside.command, outside.needs) == ("sudo apt install it", ("root",))


def test_a_summary_that_breaks_is_an_error_and_costs_no_other_check() -> None:
    def summary(facts: Any) -> str:
        raise ValueError("no such thing")

    checks = {
        "breaks": Check(nothing, summary, id="breaks", area="machine"),
        "other": Check(nothing, lambda facts: "well", id="other", area="machine"),
    }
    report = doctor.judge(Snapshot("s", "0", "2026-01-01T00:00:00Z", {}), checks)
    assert statuses(report) == {"breaks": "error", "other": "pass"}


@pytest.mark.parametrize(
    ("kind", "status", "message"),
    [
        (Skip.NO_ANSWER, "skip", "why"),
        (Skip.NOT_PERMITTED, "skip", "why"),
        (Skip.UNSUPPORTED, "pass", "nothing wrong found"),
        (Skip.NOT_APPLICABLE, "pass", "nothing wrong found"),
    ],
)
@pytest.mark.parametrize("with_clue", [False, True])
def test_what_a_summary_cannot_read_is_not_healthy(kind: str, status: str, message: str, with_clue: bool) -> None:
    def judge(facts: Any) -> Iterator[Finding]:
        if with_clue:
            yield replace(ODD.found("a hint"), is_clue=True)

    def summary(facts: Any) -> str:
        raise Skip("why", kind)

    [row] = doctor.judge(Snapshot("s", "0", "2026-01-01T00:00:00Z", {}), {"a": Check(judge, summary, id="a")}).checks
    assert (row.status.value, row.message) == (status, message)


def test_an_unreadable_os_release_hides_no_fix_and_shows_no_foreign_one() -> None:
    fixes = (Fix("For Debian", "apt", on=("debian",)), Fix("For others", "make", on=("other",)))
    unreadable = System(Replies({"file:/etc/os-release": Reply("denied")})).platform
    assert unreadable[:2] == ("other", "host")
    assert [fix.title for fix in fitting(fixes, FixContext(unreadable), {})] == ["For others"]


def test_where_only_a_text_is_known_every_familys_fix_is_shown_with_its_name() -> None:
    fixes = (
        Fix("Install it", "apt", on=("debian",)),
        Fix("Install it", "dnf", on=("rhel",)),
        Fix("Install it", "make", on=("other",)),
    )
    platform = judged(check=nothing).target["platform"]
    assert [fix.title for fix in fitting(fixes, FixContext(tuple(platform)), {})] == [
        "On Debian and Ubuntu: install it",
        "On RHEL and Fedora: install it",
    ]


def test_what_each_gpu_is_asked_says_which_does_not_answer() -> None:
    checks = doctor.select(catalog.checks(), "quick")
    lost, healthy = (doctor.judge(machine.load(case), checks).checks for case in ("gpu-lost", "h200-x2-full"))
    passed = [result for result in lost if checks[result.id].of_gpus and result.status is Status.PASS]
    assert passed
    assert [result.message for result in passed if not result.message.endswith("; GPU 7 does not answer")] == []
    assert not any("does not answer" in result.message for result in healthy)


MEASURED = {id: check for id, check in catalog.checks().items() if check.figures is not Check.figures}


@pytest.mark.parametrize("case", ["h200-x2-full", "all-reduce-crawls", "h200-x2-burned"])
def test_the_figures_of_a_check_are_made_once(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one judgement, whoever reads them: its judge, its summary or the report."""
    made: Counter[str] = Counter()

    def counted(id: str, figures: Callable[[Any], Iterable[Figure]]) -> Callable[[Any], Iterable[Figure]]:
        def count(facts: Any) -> Iterator[Figure]:
            made[id] += 1
            yield from figures(facts)

        return count

    checks = catalog.checks()
    for id, check in MEASURED.items():
        own = check.judge.__globals__
        assert own["figures"] is check.figures
        checks[id] = replace(check, figures=counted(id, check.figures))
        monkeypatch.setitem(own, "figures", checks[id].figures)
    report = doctor.judge(machine.load(case), checks)
    judged = {row.id for row in report.checks if row.status in (Status.PASS, Status.WARN, Status.FAIL)}
    assert {id for id in judged if made[id] != 1} & set(MEASURED) == set()
    assert set(made.values()) == {1}
    assert set(report.measured.figures) <= set(made)


def test_every_check_with_figures_is_in_one_of_these_machines() -> None:
    cases = {
        "h200-x2-full": "full",
        "all-reduce-crawls": "full",
        "h200-x2-burned": "burn",
        "h200-x2-burned-with-sums": "burn",
        "h200-x2-collectives": "full",
        "h100-onnxruntime-and-tensorflow": "full",
        "mig-all-instances-measured": "full",
        "arrays-copied-between-frameworks": "full",
    }
    reports = (doctor.judge_at_its_level(machine.load(case), level) for case, level in cases.items())
    assert {id for report in reports for id in report.measured.figures} == set(MEASURED)


def test_what_facts_cannot_be_made_of_is_tried_once() -> None:
    tried: list[int] = []

    def make(facts: Any) -> Iterator[int]:
        tried.append(1)
        yield 1
        raise Skip("no more")

    facts = Facts(Snapshot("s", "0", "2026-01-01T00:00:00Z", {}))
    for _ in range(2):
        with pytest.raises(Skip, match="no more"):
            facts.once(make)
    assert tried == [1]
    gone = weakref.ref(facts)
    del facts
    assert gone() is None, "a thousand machines would wait in memory for a collection of garbage"


def test_a_plan_of_measurements_that_cannot_be_read_costs_no_report() -> None:
    taken = machine.load("measurements-crash")
    plan = replace(taken.measured["plan"], value=None)
    report = doctor.judge_at_its_level(replace(taken, measured={**taken.measured, "plan": plan}))
    assert report.measured.left_alone == ()
