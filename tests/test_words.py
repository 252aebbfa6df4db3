"""What people read is plain English: short titles, fixes that start with a verb, and no phrase of the list."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from each import each
from sources import examined, nodes, text_of

from gpudoctor import catalog
from gpudoctor.cli import COMMANDS, main
from gpudoctor.knowledge import messages
from gpudoctor.lint import catalog as lint_catalog
from gpudoctor.model import Fix, Problem

ROOT = Path(__file__).parent.parent
MOST_CHARACTERS = 70
VERBS = frozenset((Path(__file__).parent / "verbs.txt").read_text().split())
PROBLEMS = {id: problem for id, (_, problem) in catalog.problems().items()}
PAGES = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md")]
CODE = [*(ROOT / "gpudoctor").rglob("*.py"), *(ROOT / "checks").rglob("*.py")]

BANNED = (
    r"anew",
    r"(?:is|are|was|were|be|been|being) told",
    r"tells? of",
    r"(?:says?|said) of",
    r"somebody",
    r"nobody",
    r"all the same",
    r"len[dt]s?",
    r"the wish",
    r"takes? (?:it|them|that|this) back",
    r"in its way",
    r"from memory",
    r"(?:it|that|this|these|those|which) (?:is|are|was|were) no(?! longer| more| other| newer| older| such)",
    r"(?:has|have|had) none",
    r"of (?:its|their|his|her|one's) own",
    r"by (?:itself|themselves)",
    r"beside",
    r"mostly",
)
PHRASES = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)


def phrases(text: str) -> list[str]:
    """The banned phrases in a text, without code in backticks: what other programs print is theirs."""
    return PHRASES.findall(re.sub(r"`[^`]*`", "", " ".join(text.split())))


@pytest.mark.parametrize("text", ["Make it anew", "a folder that is no folder", "Nobody has it", "the driver is told of it"])
def test_a_phrase_is_found(text: str) -> None:
    assert phrases(text)


def test_a_title_names_the_fault_in_a_line() -> None:
    long = [problem.title for problem in PROBLEMS.values() if len(problem.title) > MOST_CHARACTERS or problem.title.endswith(".")]
    assert long == []


def starts_with_a_verb(fix: Fix) -> bool:
    """`Install gcc`; where it holds and where it is typed may come first: `On the host: install gcc`."""
    return any(re.split(r"\W", part, maxsplit=1)[0].lower() in VERBS for part in fix.title.split(": "))


def test_a_fix_starts_with_a_verb() -> None:
    fixes = [fix for problem in PROBLEMS.values() for fix in problem.fixes]
    assert len(fixes) > 1000
    assert [fix.title for fix in fixes if not starts_with_a_verb(fix)] == []


def texts_of(problem: Problem) -> Iterator[str]:
    yield from (problem.title, problem.why, *(fix.title for fix in problem.fixes))


def test_problems_are_in_plain_words() -> None:
    assert {id: found for id, problem in PROBLEMS.items() if (found := [*map(phrases, texts_of(problem))]) and any(found)} == {}


def helps(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    context = click.Context(command, parent, name, **command.context_settings)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found
            yield from helps(found, each, context)


@pytest.mark.parametrize(("name", "text"), [pytest.param(*each, id=each[0]) for each in helps(main, "gpudoctor")])
def test_help_is_in_plain_words(name: str, text: str) -> None:
    assert phrases(text) == []


def test_a_command_says_what_it_does_in_one_line() -> None:
    for name, text in COMMANDS.items():
        assert len(text) <= 67, name
        assert text.split()[0].lower() in VERBS, name


def prose_of(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@each("page", [page for page in PAGES if page.name != "glossary.md"], ids=lambda page: page.name)
def test_a_page_is_in_plain_words(page: Path) -> None:
    """The glossary names words that are not used."""
    assert phrases(prose_of(page)) == []


def prose_in(path: Path) -> Iterator[str]:
    """The strings of a module that are sentences, docstrings included; not patterns, names and commands."""
    for node in nodes(text_of(path), ast.Constant):
        text = node.value if isinstance(node.value, str) else ""
        is_list_of_names = len(text) > 200 and not re.search(r"[.,:;](?:\s|$)", text)
        if " " in text.strip() and not is_list_of_names and not re.search(r"\\[a-z]|\(\?|\.\*|[|]", text):
            yield text


@examined
def test_code_speaks_in_plain_words() -> None:
    found = [f"{path.relative_to(ROOT)}: {hits}" for path in CODE for text in prose_in(path) if (hits := phrases(text))]
    assert found == []


def test_messages_are_explained_in_plain_words() -> None:
    rows = [row for topic in messages.tables().values() for row in topic.messages]
    assert len(rows) > 600
    assert {row.id: found for row in rows if (found := phrases(f"{row.words}"))} == {}


def test_rules_of_lint_are_in_plain_words() -> None:
    rules = lint_catalog.all_rules()
    assert {id: found for id, rule in rules.items() if (found := phrases(f"{rule.title}. {rule.why}"))} == {}
