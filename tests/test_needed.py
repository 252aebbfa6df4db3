"""`check --only` asks only what the selected checks read, and finds what it would find with all answers."""

from __future__ import annotations

import functools
from dataclasses import replace

import machine
import msgspec
import pytest
from each import in_parts

from gpudoctor import catalog, doctor, needed
from gpudoctor.interpreter import this_interpreter
from gpudoctor.model import Report, Snapshot
from gpudoctor.worker.probes.table import PROBES

NAMES = tuple(probe.name for probe in PROBES)


@functools.cache  # machines are asked the same
def owners(question: str) -> list[str]:
    return [probe for probe in NAMES if needed.may_answer(probe, question)]


def asked_for(taken: Snapshot, only: str) -> tuple[Snapshot, set[str]]:
    """The snapshot with the replies that `check --only` would have, and the probes that were asked."""
    checks = catalog.with_needs([only])
    asked = {*needed.FIRST}
    while True:
        replies = {
            question: reply for question, reply in taken.replies.items() if not (of := owners(question)) or asked.intersection(of)
        }
        reduced = replace(taken, replies=replies)
        further = needed.further(asked, reduced, checks)
        if not further:
            return reduced, asked
        asked.update(further)


def verdict(report: Report) -> object:
    shown = replace(report, facts={}, target={})
    return msgspec.to_builtins(shown)


def test_the_probes_are_those_of_the_table() -> None:
    assert {*needed.QUESTIONS} == {*NAMES}


@machine.every
@pytest.mark.slow
def test_every_question_of_every_machine_belongs_to_a_probe_or_was_given() -> None:
    every = {question for case in machine.cases() for question in machine.load(case).replies}
    strangers = {question for question in every if not owners(question) and not needed.is_given(question)}
    assert strangers == {"glob:/.dockerenv"}  # of older versions


def test_a_probe_answers_only_its_own_questions() -> None:
    """Asked one after the other, as `--only` asks them."""
    rest, at = list(NAMES), [""]
    heard: dict[str, str] = {}

    def hear(message: dict[str, object]) -> None:
        if "question" in message:
            heard.setdefault(str(message["question"]), at[0])

    def more() -> list[str]:
        at[0] = rest.pop(0) if rest else ""
        return [at[0]] if at[0] else []

    this_interpreter().run({"seconds": 60, "probes": []}, hear, more=more)
    assert {question: probe for question, probe in heard.items() if probe not in owners(question)} == {}
    assert {question for question in heard if question.startswith("probe:")} == {f"probe:{name}" for name in NAMES}


def sample() -> list[tuple[str, str]]:
    """Machine and check: each check once, and machines from all over the alphabet."""
    ids, cases = catalog.ids(), machine.cases()
    return [(cases[number * len(cases) // len(ids)], id) for number, id in enumerate(ids)]


@machine.every
@pytest.mark.slow
@in_parts("row", sample())
def test_the_verdict_is_that_of_all_answers(row: tuple[str, str]) -> None:
    case, only = row
    whole = machine.load(case)
    replies = {
        name: reply for name, reply in whole.replies.items() if not name.startswith(("text:", "job-")) and name != "command"
    }
    taken = replace(whole, replies=replies, host={})  # with logs, and in containers, everything is asked
    reduced, _ = asked_for(taken, only)
    checks = catalog.with_needs([only])
    assert verdict(doctor.judge(reduced, checks)) == verdict(doctor.judge(taken, checks))
