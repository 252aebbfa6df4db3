"""Every rule of `images lint`: comments `expect: RULE` in tests/lint/<rule>/ say where it is to be found, and nowhere else.

`expect:` in a line of its own speaks of the next line, otherwise of its own line.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from each import each

from gpudoctor.lint import catalog, files
from gpudoctor.lint.model import STATUSES, Rule

CASES = Path(__file__).parent / "lint"
RULES = catalog.all_rules()
_EXPECT = re.compile(r"(?:#|//) expect: ([\w-]+)")


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def expected(text: str) -> set[tuple[int, str]]:
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        if mark := _EXPECT.search(line):
            alone = line.lstrip().startswith(("#", "//"))
            found.add((number + alone, mark[1]))
    return found


@each("path", sorted(CASES.glob("*/*")), ids=named)
def test_finds_what_is_marked_and_nothing_else(path: Path) -> None:
    marked = expected(path.read_text())
    assert (path.parent.name in {rule for _, rule in marked}) == path.name.startswith("bad")
    assert {(fault.line, fault.rule.id) for fault in files.lint(path).faults} == marked


@each("rule", RULES.values(), ids=lambda rule: rule.id)
def test_every_rule_keeps_the_contract(rule: Rule) -> None:
    names = [path.name for path in (CASES / rule.id).iterdir()]
    assert any(name.startswith("bad") for name in names)
    assert any(name.startswith("good") for name in names)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.id)
    assert rule.status in STATUSES
    assert rule.references
    assert all(reference.startswith("https://") for reference in rule.references)
    assert len(rule.title) <= 72
    assert not rule.title.endswith(".")
    assert rule.why.endswith(".")
    assert len(rule.why.split()) >= 10
    assert rule.write


def test_no_rule_is_defined_twice_and_no_case_is_of_none() -> None:
    defined = [rule.id for module in catalog.modules() for rule in module.RULES]
    assert len(defined) == len(set(defined))
    assert {path.name for path in CASES.iterdir()} == set(defined)


@each("path", sorted(CASES.glob("*/bad*")), ids=named)
def test_says_what_stands_there_and_what_to_write(path: Path) -> None:
    for fault in files.lint(path).faults:
        assert fault.message == " ".join(fault.message.split())
        assert len(fault.message) < 160
        assert fault.write.strip()


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        ("FROM ubuntu:24.04\nRUN nvidia-smi\n", ["fail"]),
        ("FROM ubuntu:24.04 AS tried\nRUN nvidia-smi\nFROM ubuntu:24.04\n", ["info"]),
        ("FROM ubuntu:24.04 AS used\nRUN nvidia-smi\nFROM ubuntu:24.04\nCOPY --from=used /a /a\n", ["fail"]),
        ("FROM nvcr.io/nvidia/l4t-base:r36.2.0\nRUN nvidia-smi\n", ["info"]),
    ],
)
def test_only_a_build_that_surely_ends_fails(text: str, statuses: list[str], tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    found = files.lint(tmp_path / "Dockerfile").faults
    assert [fault.status for fault in found if fault.rule.id == "gpu-used-in-build"] == statuses
