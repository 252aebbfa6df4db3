"""Pasted texts: each case's diagnosis is what its author says, and none of its look-alikes is in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import yaml
from each import in_parts

from gpudoctor import catalog, doctor, evidence
from gpudoctor.model import Report

MANAGERS = {"debian": "apt|apt-get|dpkg|ubuntu-drivers", "rhel": "dnf|yum|akmods", "suse": "zypper", "arch": "pacman|yay"}
CASES = sorted((Path(__file__).parent / "texts").glob("*.yaml"))


def report_of(case: dict[str, Any]) -> Report:
    told = evidence.of_text(case["text"])
    if "machine" in case:
        taken = evidence.added(replace(machine.load(case["machine"]), measured={}), told)
    else:
        taken = evidence.snapshot_of(told)
    return doctor.judge(taken, doctor.select(catalog.checks(), "quick"))


def managers(text: str, before: str) -> set[str]:
    return {family for family, names in MANAGERS.items() if re.search(rf"(?m){before}(?:sudo )?(?:{names})\b", text)}


def of_other_distributions(report: Report, text: str) -> list[str]:
    """Commands for a package manager, in a text at whose prompts only another one was typed."""
    typed = managers(text, r"^[^\n]{0,60}[$#] ")
    commands = [fix.command for entry in report.diagnosis for fix in entry.fixes] if len(typed) == 1 else []
    return [command for command in commands if (used := managers(command, r"(?:^|[\s(])")) and not used & typed]


@in_parts("path", CASES, ids=lambda path: path.stem)
def test_diagnosis_is_what_the_author_says(path: Path) -> None:
    case = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    report = report_of(case)
    found = [entry.problem for entry in report.diagnosis]
    assert found == case["problems"]
    if "notes" in case:
        assert [note.problem for note in report.notes] == case["notes"]
    assert not set(found) & set(case.get("never", ()))
    if found and "confidence" in case:
        assert report.diagnosis[0].confidence.value == case["confidence"]
    if "title" in case:
        assert case["title"] in report.diagnosis[0].title
    if "fix" in case:
        said = [f"{fix.title} {fix.command}" for fix in report.diagnosis[0].fixes]
        assert any(case["fix"] in words for words in said), said
    assert not of_other_distributions(report, case["text"])
    assert not [result for result in report.checks if result.status.value == "error"]
