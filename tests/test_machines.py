"""Whole machines: each case's diagnosis is what its author says, and its report is the one that was reviewed.

`problems` in machine.yaml are only ever written by hand. A report.yaml beside it holds the words and fixes of the diagnosis;
`pytest tests/test_machines.py --update CASE` writes that of one case, for review in the diff.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import machine
import msgspec
import pytest
import safe_script
import yaml
from each import in_parts

from gpudoctor import catalog, doctor
from gpudoctor.choices import BURN
from gpudoctor.facts import shapes
from gpudoctor.files import snapshot
from gpudoctor.model import Confidence, Diagnosis, Report, Skip, Snapshot, Status

TEXTS = Path(__file__).parent / "texts"
OF_TEXTS = {"text-facts"}  # never judges a machine
LETTERS = 6  # with which the name of a machine and of its check begin alike


def verdict(report: Report) -> dict[str, Any]:
    """What a report says of this machine, short enough to be read in a diff.

    What every broken machine shares is left out, so that a new check changes no other case: the checks that a problem blocks,
    and those that could not look.
    """
    ran = {row.id for row in (*report.checks, *report.host) if row.status in (Status.WARN, Status.FAIL)}
    notes = {"notes": [_entry(entry, ran) for entry in report.notes]} if report.notes else {}
    return {"status": report.status.value, "diagnosis": [_entry(entry, ran) for entry in report.diagnosis], **notes}


def _entry(entry: Diagnosis, ran: set[str]) -> dict[str, Any]:
    about: dict[str, Any] = {"problem": entry.problem, "check": entry.check, "message": entry.message}
    if entry.confidence is not Confidence.CONFIRMED:
        about["confidence"] = entry.confidence.value
    if explains := [id for id in entry.explains if id in ran]:
        about["explains"] = explains
    return {**about, "fixes": [fix.command or fix.title for fix in entry.fixes]}


def unseen(case: str, report: Report) -> dict[str, str]:
    """The checks that cannot look at this machine, though they can at the one that it is made from, and why."""
    base = machine.describe(case).get("base")
    before = _skipped(report_of(base)) if base else {}
    return {id: reason for id, reason in _skipped(report).items() if before.get(id) != reason}


def _skipped(report: Report) -> dict[str, str]:
    rows = (row for row in report.checks if row.status is Status.SKIP and row.reason != Skip.NOT_APPLICABLE)
    return {row.id: f"{row.reason}: {row.message}" for row in rows}


@functools.cache
def report_of(case: str) -> Report:
    taken = machine.load(case)
    return doctor.judge(taken, doctor.select(catalog.checks(), level(taken)))


def level(taken: Snapshot) -> str:
    if taken.level == BURN:
        return BURN
    return "full" if taken.measured else "quick"


@in_parts("case", machine.cases())
def test_diagnosis_is_what_the_author_says_and_the_report_the_reviewed_one(case: str, updated: frozenset[str]) -> None:
    must_answer_in_these_types(machine.load(case))
    report = report_of(case)
    assert [row for row in report.checks if row.status is Status.ERROR] == []
    assert [entry.problem for entry in (*report.diagnosis, *report.notes) if not all(entry.seen_in or [""])] == []
    assert sorted(entry.problem for entry in report.diagnosis) == sorted(machine.describe(case)["problems"])
    assert sorted(entry.problem for entry in report.notes) == sorted(machine.describe(case).get("notes", []))
    for fix in (fix for entry in (*report.diagnosis, *report.notes) for fix in entry.fixes):
        assert not re.search(r"<[a-z_]+>", fix.command + fix.verify), fix.command
    safe_script.check(report.diagnosis)
    file = machine.MACHINES / case / "report.yaml"
    if case in updated:
        shown = verdict(report) | ({"unseen": hidden} if (hidden := unseen(case, report)) else {})
        file.write_text(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=150))
    if file.exists():
        expected = yaml.load(file.read_text(), yaml.CSafeLoader)
        hidden = expected.pop("unseen", {})
        assert expected == verdict(report)
        assert hidden == {id: reason for id, reason in unseen(case, report).items() if id in hidden}


def must_answer_in_these_types(taken: Snapshot) -> None:
    assert shapes.all_fitting(taken.replies) == taken.replies
    assert shapes.all_fitting(taken.host) == taken.host
    assert shapes.all_measured_fitting(taken.measured) == taken.measured


@machine.every
def test_every_problem_fires_somewhere() -> None:
    described = map(machine.describe, machine.cases())
    fired = {problem for case in described for problem in (*case["problems"], *case.get("notes", ()))}
    texts = [yaml.load(path.read_bytes(), yaml.CSafeLoader) for path in TEXTS.glob("shown-*.yaml")]
    fired |= {problem for text in texts for problem in (*text["problems"], *text.get("notes", ()))}
    pairs = (yaml.load((TEXTS.parent / f"text_{name}.yaml").read_bytes(), yaml.CSafeLoader) for name in ("pairs", "values"))
    fired |= {pair["problem"] for each in pairs for pair in each}
    told = yaml.load((TEXTS.parent / "text_symptoms.yaml").read_bytes(), yaml.CSafeLoader)["described"]
    fired |= {row["problem"] for row in told}
    assert {problem.id for check in catalog.checks().values() for problem in catalog.found_by(check)} - fired == set()


@machine.every
@pytest.mark.slow
def test_every_check_passes_somewhere() -> None:
    """Of each machine, the healthy ones first, only those are judged that have not passed yet, and what they need.

    After these come machines that are called as one of the checks that are left.
    """
    left = set(catalog.checks()) - OF_TEXTS
    cases = sorted(machine.cases(), key=lambda case: len(machine.describe(case)["problems"]))
    while left and cases:
        is_healthy = not machine.describe(cases[0])["problems"]
        alike = (place for place, case in enumerate(cases) if case.startswith(tuple(id[:LETTERS] for id in left)))
        case = cases.pop(0 if is_healthy else next(alike, 0))
        taken = machine.load(case)
        asked = left & set(doctor.select(catalog.checks(), level(taken)))
        report = doctor.judge(taken, doctor.select(catalog.checks(), level(taken), only=asked))
        left -= {row.id for row in report.checks if row.status is Status.PASS}
    assert left == set()


@pytest.mark.slow
@in_parts("case", machine.cases()[::10])
def test_replay_of_a_saved_snapshot_gives_the_same_report(case: str) -> None:
    again = snapshot.parse(snapshot.dump(machine.load(case)), case)
    checks = doctor.select(catalog.checks(), level(again))
    assert msgspec.json.encode(doctor.judge(again, checks)) == msgspec.json.encode(report_of(case))
