"""What a machine is asked, a text can show: the table of questions and commands is whole, and the readers understand them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import machine
import pytest
import yaml
from each import each

from gpudoctor import evidence
from gpudoctor.knowledge.questions import AS_SHOWN, BY_NO_COMMAND, COMMANDS, commands, reason, seen_in

SAMPLES = Path(__file__).parent / "questions.yaml"
BY_OTHER_TESTS = ("nvml", "cuda", "pci", "container-start", "nccl-log", "kernel-log", "glob:/var/lib/dkms", "command:nvidia-smi")


@cache
def asked() -> frozenset[str]:
    """Every question of every machine of the tests."""
    return frozenset(question for case in machine.cases() for question in machine.load(case).replies)


def samples() -> list[tuple[str, str]]:
    """(question, text)"""
    rows = yaml.load(SAMPLES.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return [(question, text) for question, texts in rows.items() for text in texts]


def replies(text: str) -> set[str]:
    found = evidence.of_text(text).replies
    return {question for question, reply in found.items() if reply.status in ("ok", "missing")}


@pytest.mark.slow
def test_no_question_of_the_collector_is_missing() -> None:
    assert sorted(question for question in asked() if not (commands(question) or reason(question))) == []
    assert sorted(question for question in asked() if not seen_in(question)) == []


@pytest.mark.slow
def test_no_row_is_about_something_that_is_not_asked() -> None:
    asked_for = {next((row for row in COMMANDS if _fits(row, question)), "") for question in asked()}
    assert sorted(COMMANDS.keys() - asked_for - {"cdi"}) == []


def _fits(row: str, question: str) -> bool:
    return bool(re.fullmatch(".*".join(map(re.escape, row.split("*"))), question))


def test_no_question_has_both() -> None:
    assert COMMANDS.keys() & BY_NO_COMMAND.keys() == set()


@each(("question", "text"), samples(), ids=lambda row: row[1].splitlines()[0][:40])
def test_the_output_of_the_command_answers_the_question(question: str, text: str) -> None:
    assert AS_SHOWN.get(question, question) in replies(text)


def test_every_command_of_the_table_has_a_sample() -> None:
    shown = {question for question, _ in samples()}
    missing = [row for row in COMMANDS if not row.startswith(BY_OTHER_TESTS) and not any(_fits(row, one) for one in shown)]
    assert missing == []
