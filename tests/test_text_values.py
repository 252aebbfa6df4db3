"""Values of outputs in a text that are wrong for their kind: a rule names the fault, and nothing where the value is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from each import each

from gpudoctor import catalog, evidence
from gpudoctor.facts import Facts
from gpudoctor.judging.texts import rules

TESTS = Path(__file__).parent
VALUES = yaml.load((TESTS / "text_values.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
RIGHT = yaml.load((TESTS / "text_right_values.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)


def problems(text: str) -> list[str]:
    """What the rules find alone, without the checks of a whole report, which cost a hundred times as much."""
    named = {id: problem for id, (_, problem) in catalog.problems().items()}
    facts = Facts(evidence.snapshot_of(evidence.of_text(text)), lambda: named)
    return [finding.problem.id for finding in rules.findings(facts) if not finding.is_clue]


@each("value", VALUES, ids=lambda value: value["name"])
def test_a_wrong_value_is_named(value: dict[str, Any]) -> None:
    assert problems(value["text"])[:1] == [value["problem"]]
    text = value["text"]
    for wrong, right in value["healthy"]:
        assert wrong in text
        text = text.replace(wrong, right)
    assert problems(text) == []


@each("name", RIGHT)
def test_a_right_value_is_not(name: str) -> None:
    assert problems(RIGHT[name]) == []


EXPORTED = """\
dependencies:
  - python=3.10.13=hd12c33a_0_cpython
  - pytorch=2.1.0=cpu_mkl_py310hd2f1f9a_100
"""
OF_PIXI = """\
Package   Version  Build                Size       Kind   Source
pytorch   2.1.0    cpu_generic_py311    20.1 MiB   conda  pytorch
"""
LOCKED = """\
[[package]]
name = "torch"
version = "2.1.0+cpu"
"""


@each("text", [EXPORTED, OF_PIXI, LOCKED])
def test_packages_are_read_from_exports_and_locks(text: str) -> None:
    python = Facts(evidence.snapshot_of(evidence.of_text(text))).python
    assert (python.torch_version or "").startswith("2.1.0")
    assert python.torch_cuda is None
