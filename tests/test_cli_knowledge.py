"""`gpudoctor knowledge`, and the version that every report names."""

from __future__ import annotations

import json
import re
from datetime import date

import machine
from click.testing import CliRunner

from gpudoctor import catalog, doctor
from gpudoctor.cli import knowledge, main
from gpudoctor.knowledge import version
from gpudoctor.report import markdown, terminal


def said(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["knowledge", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_tables_are_counted() -> None:
    text = said()
    assert re.match(rf"Knowledge {version.version()}, \d+ days? old: ", text)
    assert "176 xids, 399 sxids" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_the_age_is_counted_in_days() -> None:
    assert [knowledge.days_old("2026-11-21-3f2a9c1b", date(2026, month, day)) for month, day in ((11, 21), (12, 1), (1, 1))] == [
        0,
        10,
        0,
    ]
    assert json.loads(said("--format", "json"))["days_old"] >= 0


def test_programs_get_the_same() -> None:
    told = json.loads(said("--format", "json"))
    assert told["version"] == version.version()
    tables = {table["table"]: table for table in told["tables"]}
    assert tables["xids"]["rows"] == {"actions": 30, "xids": 176, "sxids": 399}
    assert told["rows"] == sum(sum(table["rows"].values()) for table in told["tables"])
    assert tables["xids"]["oldest"] <= tables["xids"]["newest"]


def test_every_report_names_the_version() -> None:
    report = doctor.judge(machine.load("h100"), doctor.select(catalog.checks(), "quick", ["xids"]))
    assert report.knowledge == version.version()
    assert f"(knowledge {version.version()})" in terminal.render(report, width=120, verbose=True)
    assert f"(knowledge {version.version()})" in markdown.render(report)
