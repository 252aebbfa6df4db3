"""A command for a text fits the machine of the text: its package manager, kernel, container engine, cluster and environment."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from each import each

from gpudoctor import catalog, doctor, evidence

ROWS = yaml.load((Path(__file__).parent / "text_commands.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)


@each("name", ROWS)
def test_commands_fit_the_machine_of_a_text(name: str) -> None:
    row = ROWS[name]
    checks = {id: catalog.checks()[id] for id in ("messages", "text-facts", *row.get("checks", ()))}
    report = doctor.judge(evidence.snapshot_of(evidence.of_text(row["text"])), checks)
    commands = "\n".join(fix.command for entry in report.diagnosis for fix in entry.fixes)
    assert report.diagnosis
    assert re.search(row.get("first", ""), report.diagnosis[0].fixes[0].title)
    for pattern in row.get("has", []):
        assert re.search(pattern, commands), commands
    for pattern in row.get("lacks", []):
        assert not re.search(pattern, commands), commands
