"""Whole machines: each case's diagnosis is what its author says, and its report is the one that was reviewed.

UPDATE_MACHINES=1 writes the reports anew, for review in the diff; the `problems` of machine.yaml are only ever written by hand.
"""

from __future__ import annotations

import functools
import os
import re
from typing import Any

import machine
import msgspec
import pytest
import safe_script
import yaml

from gpudoctor import catalog, doctor
from gpudoctor.files import snapshot
from gpudoctor.model import Report, Skip, Snapshot, Status


def verdict(report: Report) -> dict[str, Any]:
    """A report, short enough to be read in a diff. What does not apply here is left out: a new check changes no other case."""
    rows: dict[str, Any] = {}
    for result in report.checks:
        if result.status is Status.SKIP and result.reason != Skip.NOT_APPLICABLE:
            rows.setdefault("skip", {})[result.id] = f"{result.reason}: {result.message}"
        elif result.status not in (Status.PASS, Status.SKIP):
            rows.setdefault(result.status.value, []).append(result.id)
    return {
        "status": report.status.value,
        "diagnosis": [
            {
                "problem": entry.problem,
                "confidence": entry.confidence.value,
                "message": entry.message,
                "explains": list(entry.explains),
                "fixes": [fix.command or fix.title for fix in entry.fixes],
            }
            for entry in report.diagnosis
        ],
        "checks": rows,
    }


@functools.cache
def report_of(case: str) -> Report:
    taken = machine.load(case)
    return doctor.judge(taken, doctor.select(catalog.checks(), level(taken)))


def level(taken: Snapshot) -> str:
    return "full" if taken.measured else "quick"


@pytest.mark.parametrize("case", machine.cases())
def test_diagnosis_is_what_the_author_says_and_the_report_the_reviewed_one(case: str) -> None:
    report = report_of(case)
    assert [row for row in report.checks if row.status is Status.ERROR] == []
    assert sorted(entry.problem for entry in report.diagnosis) == sorted(machine.describe(case)["problems"])
    for fix in (fix for entry in report.diagnosis for fix in entry.fixes):
        assert not re.search(r"<[a-z_]+>", fix.command + fix.verify), fix.command
    safe_script.check(report.diagnosis)
    file = machine.MACHINES / case / "report.yaml"
    if os.environ.get("UPDATE_MACHINES"):
        file.write_text(yaml.safe_dump(verdict(report), sort_keys=False, allow_unicode=True, width=150))
    assert yaml.load(file.read_text(), yaml.CSafeLoader) == verdict(report)


def test_every_problem_fires_somewhere() -> None:
    fired = {problem for case in machine.cases() for problem in machine.describe(case)["problems"]}
    assert {problem.id for check in catalog.checks().values() for problem in check.problems} - fired == set()


def test_every_check_passes_somewhere() -> None:
    """Of each machine only those are judged that have not passed yet, and what they need."""
    left = set(catalog.checks())
    for case in machine.cases():
        if not left:
            return
        taken = machine.load(case)
        asked = left & set(doctor.select(catalog.checks(), level(taken)))
        report = doctor.judge(taken, doctor.select(catalog.checks(), level(taken), only=asked))
        left -= {row.id for row in report.checks if row.status is Status.PASS}
    raise AssertionError(left)


@pytest.mark.parametrize("case", machine.cases()[::10])
def test_replay_of_a_saved_snapshot_gives_the_same_report(case: str) -> None:
    again = snapshot.parse(snapshot.dump(machine.load(case)), case)
    checks = doctor.select(catalog.checks(), level(again))
    assert msgspec.json.encode(doctor.judge(again, checks)) == msgspec.json.encode(report_of(case))
