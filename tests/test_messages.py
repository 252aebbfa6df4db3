"""The tables of messages: every row finds its samples, and no text means two things unless a row says which of them decides."""

from __future__ import annotations

from graphlib import TopologicalSorter

from each import each

from gpudoctor import catalog
from gpudoctor.facts.texts import Text
from gpudoctor.judging.texts import messages as judged
from gpudoctor.knowledge import messages

SHORTEST_ANCHOR = 6
rows = each("row", messages.messages(), ids=lambda row: row.id)


def text(sample: str) -> Text:
    return Text("sample", (), sample.count("\n") + 1, 0, tuple(enumerate(sample.splitlines(), 1)))


def found(sample: str) -> list[str]:
    return [match.message.id for match in judged.matches([text(sample)])]


@rows
def test_a_row_is_sound(row: messages.Message) -> None:
    """It finds its samples and nothing else, fast; it has a source; the problems and groups that it names are there."""
    assert row.samples
    for sample in row.samples:
        assert row.id in found(sample), sample
    for other in row.never:
        assert row.id not in found(other), other
    assert row.literals
    assert min(map(len, row.literals)) >= SHORTEST_ANCHOR, row.literals
    assert all(any(literal in sample for literal in row.literals) for sample in row.samples)
    table = next(table for table in messages.tables().values() if row in table.messages)
    assert set(row.source) <= set(table.sources)
    assert (row.source and row.read) or row.known == "field"
    assert {row.problem, *row.causes} <= set(catalog.problems())
    assert row.problem not in row.causes
    assert row.confidence != "unknown" or (row.causes and row.decide), "words that do not decide need the command that does"
    assert row.words.format(**dict.fromkeys(row.regex.groupindex, "value"))


def test_no_literal_is_in_most_lines_of_a_log() -> None:
    """Each line in which one is must be kept of a large text."""
    short = {message.id: literal for message in messages.messages() for literal in message.kept if len(literal) < 3}
    assert not short


def test_ids_are_unique() -> None:
    ids = [row.id for row in messages.messages()]
    assert sorted(ids) == sorted(set(ids))
    own = messages.problems()
    of_checks = {problem.id for check in catalog.checks().values() for problem in check.problems}
    assert not set(own) & of_checks
    assert len(own) == sum(len(table.problems) for table in messages.tables().values())


def test_every_problem_of_the_tables_is_told_by_a_message() -> None:
    told = {id for row in messages.messages() for id in (row.problem, *row.causes)}
    assert not set(messages.problems()) - told


@rows
def test_no_text_has_two_meanings(row: messages.Message) -> None:
    """Of two rows that match one sample and name different problems, one is explained by the other."""
    for sample in row.samples:
        for other in (match.message for match in judged.matches([text(sample)])):
            decided = other.problem == row.problem or other.problem in row.causes or row.problem in other.causes
            assert decided, f"{row.id} and {other.id} both match {sample!r}"


def test_no_two_messages_explain_each_other() -> None:
    causes: dict[str, set[str]] = {}
    for row in messages.messages():
        causes.setdefault(row.problem, set()).update(row.causes)
    assert list(TopologicalSorter(causes).static_order())
