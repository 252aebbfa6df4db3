"""Warnings about speed and deprecations: told as what they are, and never before a failure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from each import each

from gpudoctor import catalog, doctor, evidence
from gpudoctor.facts.texts import Text
from gpudoctor.judging.texts import messages as texts
from gpudoctor.knowledge import messages
from gpudoctor.model import Report, Status
from gpudoctor.report import explained

PROBLEMS = {id: problem for id, (_, problem) in catalog.problems().items()}
TOPICS = ("performance", "performance_compilers", "deprecations")
FAILURE = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB
"""
ROWS = [row for topic in TOPICS for row in messages.tables()[topic].messages]
OF_SPEED = [row for row in ROWS if row.id != "scaler-at-minimum"]
DEPRECATED = (
    "FutureWarning: `torch.cuda.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cuda', args...)`"
)


def judged(text: str) -> Report:
    checks = doctor.select(catalog.checks(), "quick")
    return doctor.judge(evidence.snapshot_of(evidence.of_text(text)), checks)


@each("row", OF_SPEED, ids=lambda row: row.id)
def test_a_hint_is_never_a_failure(row: Any) -> None:
    lines = tuple(enumerate(row.samples[0].splitlines(), 1))
    (finding, *others) = texts.findings([Text("sample", (), len(lines), 0, lines)], PROBLEMS)
    assert {each.problem.status for each in (finding, *others)} <= {Status.WARN, Status.PASS}


def test_no_hint_stands_before_a_failure() -> None:
    alone = judged(FAILURE).diagnosis[0]
    for rows in (OF_SPEED, OF_SPEED[::-1]):
        report = judged("\n".join(row.samples[0] for row in rows) + f"\n{FAILURE}")
        assert (report.status, report.diagnosis[0].problem) == (Status.FAIL, alone.problem)
        assert {entry.problem for entry in report.notes} >= {"torch-amp-spelling-deprecated", "kernel-spills-registers"}


def test_a_deprecation_is_a_note_with_what_to_write_instead() -> None:
    report = judged(DEPRECATED)
    assert (report.status, report.diagnosis) == (Status.PASS, ())
    text = " ".join(explained.render(report).split())
    assert "nothing in it points to a problem" in text
    assert "Note: The program uses an old spelling of mixed precision (torch.cuda.amp.GradScaler" in text
    assert "torch.amp.GradScaler('cuda'" in text


def test_a_text_without_a_note_is_not_recognised() -> None:
    assert judged("epoch 1 done").status is Status.SKIP


def test_a_check_that_stopped_is_not_taken_for_a_healthy_one() -> None:
    healthy = judged(DEPRECATED)
    checks = [
        replace(row, status=Status.ERROR, message="this check stopped") if row.id == "xids" else row for row in healthy.checks
    ]
    text = " ".join(explained.render(replace(healthy, checks=tuple(checks))).split())
    assert "Not everything that was recognised could be judged. ? xids: this check stopped" in text
    assert "nothing in it points" not in text
    failing = judged(FAILURE)
    checks = [
        replace(row, status=Status.ERROR, message="this check stopped") if row.id == "xids" else row for row in failing.checks
    ]
    assert "? xids: this check stopped" in " ".join(explained.render(replace(failing, checks=tuple(checks))).split())
