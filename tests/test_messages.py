"""The tables of messages: every row finds its samples, and no text means two things unless a row says which of them decides."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import Any

import machine
import pytest
import yaml
from each import each

from gpudoctor import catalog, compiled, doctor, folders
from gpudoctor.facts.container_start import Start
from gpudoctor.facts.texts import Text
from gpudoctor.judging.containers import causes, failed_start, said
from gpudoctor.judging.texts import compilers
from gpudoctor.judging.texts import messages as judged
from gpudoctor.knowledge import literals, messages
from gpudoctor.model import Status

SHORTEST_ANCHOR = 6
LONGEST_PATTERN = 80  # of one with several alternatives, before each has a line of its own
rows = each("row", messages.messages(), ids=lambda row: row.id)
EVERY = {topic: table.messages for topic, table in messages.tables().items()}
IN_ORDER = [row for check in messages.IN_ORDER for row in messages.messages(check)]
in_order = each("row", IN_ORDER, ids=lambda row: row.id)
FILES = sorted(folders.package().joinpath("knowledge", "messages").glob("*.yaml"))


def text(sample: str) -> Text:
    return Text("sample", (), sample.count("\n") + 1, 0, tuple(enumerate(sample.splitlines(), 1)))


def found(sample: str) -> list[messages.Message]:
    return [match.message for match in judged.matches([text(sample)])]


@rows
def test_a_row_is_sound(row: messages.Message) -> None:
    """It finds its samples and nothing else, fast; it has a source; the problems and groups that it names are there."""
    assert row.samples
    for sample in row.samples:
        matching = found(sample)
        assert row in matching, sample
        for other in matching:
            has_one_meaning(row, other, sample)
    for never in row.never:
        assert row not in found(never), never
    assert row.literals
    assert min(map(len, row.literals)) >= SHORTEST_ANCHOR, row.literals
    assert all(any(literal in sample for literal in row.literals) for sample in row.samples)
    has_a_source(row)
    assert {row.problem, *row.causes} <= set(catalog.problems())
    assert row.problem not in row.causes
    assert row.confidence != "unknown" or (row.causes and row.decide), "words that do not decide need the command that does"
    assert row.words.format(**dict.fromkeys(row.regex.groupindex, "value"))


def has_one_meaning(row: messages.Message, other: messages.Message, sample: str) -> None:
    """Of two rows that match one sample and name different problems, one is explained by the other."""
    decided = other.problem == row.problem or other.problem in row.causes or row.problem in other.causes
    assert decided, f"{row.id} and {other.id} both match {sample!r}"


def has_a_source(row: messages.Message) -> None:
    table = next(table for table in messages.tables().values() if row in table.messages)
    assert set(row.source) <= set(table.sources)
    assert (row.source and row.read) or row.known


@in_order
def test_a_row_of_a_table_that_is_searched_in_order_is_sound(row: messages.Message) -> None:
    """What it means is what the product makes of each of its samples; what is for texts only is not in it."""
    assert row.samples
    has_a_source(row)
    assert {row.problem, *row.causes, *row.because_of.values()} <= set(catalog.problems())
    assert row.confidence != "unknown" or row.causes, "words that do not decide need the links that may be broken"
    assert not any((row.decide, row.wraps, row.clue, row.fails, row.over, row.unless, row.anchor))
    of_engine = row.id.startswith("engine-")
    for sample in row.samples:
        assert recognised(sample, of_engine) is row, sample
    for other in row.never:
        assert recognised(other, of_engine) is not row, other
    if of_engine:
        assert set(row.causes) <= set(causes.CAUSES)
        assert not row.mostly or row.mostly in row.causes
    else:
        assert len(row.causes) <= 1


def recognised(sample: str, of_engine: bool) -> messages.Message | None:
    if not of_engine:
        return messages.first(compilers.CHECK_ID, sample) if compilers.recognise(sample, "nvcc") else None
    return failed_start.recognised(Start("docker", "", "", "none", (), sample).words)


def test_every_table_is_read_by_one_check() -> None:
    read = [topic for check in (messages.TEXTS, *messages.IN_ORDER) for topic in messages.topics(check)]
    assert sorted(read) == sorted(file.stem for file in FILES)
    assert set(messages.IN_ORDER) == {failed_start.CHECK_ID, compilers.CHECK_ID}
    assert {*messages.IN_ORDER, messages.TEXTS} <= set(catalog.checks())
    assert {row.id.split("-")[0] for row in IN_ORDER} == {"engine", "compiler"}


def test_a_machine_without_texts_needs_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("table", "tables", "messages", "problems"):
        monkeypatch.setattr(messages, name, None)
    monkeypatch.setattr(catalog, "_latest", [])
    report = doctor.judge(machine.load("h100"), doctor.select(catalog.checks(), "quick"))
    assert not [result for result in report.checks if result.status is Status.ERROR]


TABLE = rb"""
parts:
  who: [runc, crun]
  where: ' in \S+'
messages:
  - id: one
    pattern: ['{who}: no{where}', 'x{2,3} {unknown}']
    problem: some-problem
    samples: []
problems:
  - id: some-problem
    title: A title
    why: Because.
    action: install
    fixes:
      - title: Install it
        commands: {debian: sudo apt install it, conda: conda install it}
        needs: [root, network]
        recipe: it
"""


def test_a_pattern_is_put_together_of_its_alternatives_and_parts() -> None:
    (row,) = messages.decoded(compiled.of_yaml(TABLE)).messages
    assert row.pattern == r"(?:runc|crun): no in \S+|x{2,3} {unknown}"


def test_a_fix_may_have_a_command_for_each_platform() -> None:
    (cause,) = messages.decoded(compiled.of_yaml(TABLE)).problems
    debian, conda = cause.fixes[0].fixes()
    assert (debian.on, debian.command, debian.needs, debian.recipe) == (
        ("debian",),
        "sudo apt install it",
        ("root", "network"),
        "it",
    )
    assert (conda.on, conda.recipe, conda.needs) == (("conda",), "", ("network",))


@each("file", FILES, ids=lambda file: file.stem)
def test_a_long_pattern_has_a_line_for_each_alternative(file: Path) -> None:
    """Where they stand at its top, and not within a group."""
    patterns = {row["id"]: row["pattern"] for row in read(file)["messages"]}
    long = {id: pattern for id, pattern in patterns.items() if isinstance(pattern, str) and len(pattern) > LONGEST_PATTERN}
    assert not [id for id, pattern in long.items() if has_alternatives(pattern)]


def read(file: Path) -> Any:
    return yaml.load(file.read_bytes(), yaml.CSafeLoader)


def has_alternatives(pattern: str) -> bool:
    plain = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "", pattern)
    while (shorter := re.sub(r"\([^()]*\)", "", plain)) != plain:
        plain = shorter
    return "|" in plain


def test_a_part_means_the_same_in_every_table() -> None:
    parts = [(name, str(part)) for file in FILES for name, part in read(file).get("parts", {}).items()]
    assert len(set(parts)) == len(dict(parts))


LEAST_WORDING = 8  # characters of a literal in a message that only a program would say


@pytest.mark.parametrize("module", [causes, failed_start, said, compilers], ids=lambda module: module.__name__)
def test_programs_wording_stands_in_the_tables_only(module: ModuleType) -> None:
    samples = [sample for row in IN_ORDER for sample in row.samples]
    for pattern in expressions(module):
        words = [word for word in literals.literals(pattern) if len(word) >= LEAST_WORDING]
        assert not [word for word in words if any(word in sample for sample in samples)], pattern


def expressions(module: ModuleType) -> Iterator[str]:
    """What is given to functions of re."""
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        is_re = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "re"
        if is_re and isinstance(pattern := node.args[0], ast.Constant):  # type: ignore[attr-defined]
            yield str(pattern.value)


def test_no_literal_is_in_most_lines_of_a_log() -> None:
    """Each line in which one is must be kept of a large text."""
    short = {message.id: literal for message in messages.messages() for literal in message.kept if len(literal) < 3}
    assert not short


def test_ids_are_unique() -> None:
    ids = [row.id for rows in EVERY.values() for row in rows]
    assert sorted(ids) == sorted(set(ids))
    own = [problem.id for table in messages.tables().values() for problem in table.problems]
    of_checks = {problem.id for check in catalog.checks().values() for problem in check.problems}
    assert not set(own) & of_checks
    assert sorted(own) == sorted(set(own))


def test_every_problem_of_the_tables_is_told_by_a_message() -> None:
    for check in (messages.TEXTS, *messages.IN_ORDER):
        told = {id for row in messages.messages(check) for id in (row.problem, *row.causes)}
        assert not set(messages.problems(check)) - told


@rows
def test_a_row_of_texts_says_what_is_wrong(row: messages.Message) -> None:
    assert row.words != "{said}"
    assert not any((row.mostly, row.because_of))


def test_no_two_messages_explain_each_other() -> None:
    causes: dict[str, set[str]] = {}
    for row in messages.messages():
        causes.setdefault(row.problem, set()).update(row.causes)
    assert list(TopologicalSorter(causes).static_order())
