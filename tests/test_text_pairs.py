"""Outputs of a text that contradict each other: the fault is the first diagnosis, and without it there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from each import each, in_parts

from gpudoctor import catalog, doctor, evidence
from gpudoctor.model import Status

TESTS = Path(__file__).parent
PAIRS = yaml.load((TESTS / "text_pairs.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
HARMLESS = yaml.load((TESTS / "text_harmless.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)


def problems(text: str) -> list[str]:
    report = doctor.judge(evidence.snapshot_of(evidence.of_text(text)), doctor.select(catalog.checks(), "quick"))
    assert not [check for check in report.checks if check.status is Status.ERROR]
    return [entry.problem for entry in report.diagnosis]


@in_parts("pair", PAIRS, ids=lambda pair: pair["name"])
def test_the_fault_is_found_and_nothing_without_it(pair: dict[str, Any]) -> None:
    assert problems(pair["text"])[:1] == [pair["problem"]]
    text = pair["text"]
    for faulty, healthy in pair["healthy"]:
        assert faulty in text
        text = text.replace(faulty, healthy)
    assert problems(text) == pair.get("left", [])


@each("name", HARMLESS)
def test_nothing_is_found_where_nothing_is_wrong(name: str) -> None:
    assert problems(HARMLESS[name]) == []
