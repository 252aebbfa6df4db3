"""Private values of every kind, planted in every answer of a machine, are in nothing that leaves it."""

from __future__ import annotations

import functools
import gzip
from dataclasses import replace

import canaries
import machine
import msgspec
import pytest
from each import each
from process import processor_seconds

from gpudoctor import catalog, doctor
from gpudoctor.files import opening, snapshot
from gpudoctor.model import Reply, Report, Snapshot, Status
from gpudoctor.redaction import Redacted, redacted
from gpudoctor.report import bundle, formats, terminal

FORMATS = tuple(formats.FORMATS)


@functools.cache
def done() -> Redacted:
    return redacted(canaries.planted(), words=(canaries.WORD,))


@functools.cache
def report_of(which: str) -> Report:
    taken = canaries.planted() if which == "as it is" else done().snapshot
    return doctor.judge(taken, doctor.select(catalog.checks(), "full"))


def left(text: str) -> list[str]:
    plain = text.lower()
    return [value for value in (*canaries.VALUES, canaries.IN_KEY) if value.lower() in plain]


def test_every_canary_is_planted_and_every_kind_has_one() -> None:
    text = snapshot.dump(canaries.planted()).decode()
    assert [value for value in canaries.VALUES if value not in text] == []
    assert {*canaries.VALUES.values(), "environment"} == set(done().tokens.counts())


def test_none_is_left_in_the_snapshot() -> None:
    assert left(snapshot.dump(done().snapshot).decode()) == []


@pytest.mark.slow
@each("form", FORMATS)
def test_none_is_left_in_any_format(form: str) -> None:
    text = formats.render(form, report_of("redacted"), done().snapshot)
    assert left(text) == []
    assert left(done().sweep(text)) == []


def test_none_is_left_in_what_a_terminal_would_show_of_everything() -> None:
    assert left(terminal.render(report_of("redacted"), 80, False, verbose=True)) == []


def test_none_is_left_in_a_bundle_or_in_the_names_of_its_files() -> None:
    packed = bundle.packed(report_of("redacted"), done().snapshot)
    assert left(gzip.decompress(packed).decode("utf-8", "replace")) == []


def test_a_sweep_alone_takes_the_names_that_were_learnt_out_of_any_text() -> None:
    told = f"{canaries.USER} of {canaries.HOST} at {canaries.PRIVATE_V4}:22 with {canaries.TOKEN} in /{canaries.FOLDER}"
    assert left(done().sweep(told)) == []


def test_the_verdict_is_the_same() -> None:
    one, other = report_of("as it is"), report_of("redacted")
    assert [row.id for row in one.checks if row.status is Status.ERROR] == []
    assert [(row.id, row.status) for row in one.checks] == [(row.id, row.status) for row in other.checks]
    assert one.diagnosis
    assert [entry.problem for entry in one.diagnosis] == [entry.problem for entry in other.diagnosis]


def test_a_report_of_which_no_snapshot_was_kept_is_redacted_too() -> None:
    raw = report_of("as it is")
    told = redacted(opening.as_answers(raw), words=(canaries.WORD,))
    report = opening.of_answers(told.snapshot)
    assert len(left(formats.render("json", raw))) > 20
    assert left(formats.render("json", report)) == []
    assert [(row.id, row.status) for row in report.checks] == [(row.id, row.status) for row in raw.checks]
    assert [entry.problem for entry in report.diagnosis] == [entry.problem for entry in raw.diagnosis]


def test_redacting_again_changes_nothing() -> None:
    again = redacted(done().snapshot, words=(canaries.WORD,))
    assert snapshot.dump(again.snapshot) == snapshot.dump(done().snapshot)
    assert again.tokens.counts() == {}
    assert set(again.tokens.private()) == {"word"}


def test_saved_and_read_it_is_the_same() -> None:
    assert snapshot.parse(snapshot.dump(done().snapshot), "it") == msgspec.convert(msgspec.to_builtins(done().snapshot), Snapshot)


@pytest.mark.slow
def test_64_gpus_take_little_more_time_than_one() -> None:
    taken = machine.load("h100-measured")
    replies = dict(taken.replies)
    machine.multiply(replies, 64)
    for index in range(64):
        value = replies[f"nvml:gpu{index}"].value
        replies[f"nvml:gpu{index}"] = Reply("ok", {**value, "UUID": value["UUID"].replace("4000", "4abc")})
    big = replace(taken, replies=replies)
    assert redacted(big).tokens.counts()["gpu-uuids"] == 64
    # 64 times as much would be so each time; what else the machine does slows one of the two.
    assert any(processor_seconds(lambda: redacted(big)) < 3 * processor_seconds(lambda: redacted(taken)) for _ in range(4))
