"""Problems that people describe in their own words: `knowledge/symptoms.yaml`."""

from __future__ import annotations

from pathlib import Path

import yaml
from each import each

from gpudoctor import catalog, doctor, evidence
from gpudoctor.knowledge import symptoms

ROWS = yaml.load(Path(__file__).with_name("text_symptoms.yaml").read_bytes(), yaml.CSafeLoader)


def found(text: str) -> list[str]:
    report = doctor.judge(evidence.snapshot_of(evidence.of_text(text)), doctor.select(catalog.checks(), "quick"))
    return [entry.problem for entry in report.diagnosis]


@each("row", ROWS["described"], ids=lambda row: row["problem"])
def test_a_problem_is_known_by_what_its_author_says(row: dict[str, str]) -> None:
    assert found(row["text"])[:1] == [row["problem"]]


@each("text", ROWS["neutral"], ids=lambda text: text[:40])
def test_a_question_or_a_story_is_no_problem(text: str) -> None:
    assert found(text) == []


def test_each_row_is_of_known_words_and_problems() -> None:
    table = symptoms.table()
    words = {name for row in table.symptoms for names in (*row.all, *row.none) for name in names.split("|")}
    assert words == table.shown.keys() | table.said.keys()
    assert not table.shown.keys() & table.said.keys()
    problems = {id for row in table.symptoms for id in (row.problem, *row.others)}
    assert problems <= catalog.problems().keys()
    for name in table.shown.keys() | table.said.keys():
        symptoms.ways(name)
