"""Practices by name: what is in the table is there, and explain, list and the shell know it."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pages
import pytest
from click.testing import CliRunner
from each import each

from gpudoctor import catalog
from gpudoctor.cli import completing, main
from gpudoctor.knowledge import practices

ROOT = Path(__file__).parent.parent
ROWS = list(practices.practices().values())
ASKED = (
    *(
        "low-gpu-utilisation",
        "pinned-memory",
        "occupancy",
        "data-loading",
        "mixed-precision",
        "tf32",
        "cuda-graphs",
        "torch-compile",
    ),
    *("streams", "synchronisation", "memory-fragmentation", "gradient-accumulation", "channels-last", "fused-optimizers"),
    *(
        "nccl-tuning",
        "kv-cache",
        "batch-size",
        "tensor-cores",
        "roofline",
        "pcie-vs-nvlink",
        "mig",
        "mps",
        "unified-memory",
        "dlpack",
    ),
)
LONGEST_TITLE = 70


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


@each("row", ROWS, ids=lambda row: row.id)
def test_a_practice_is_sound(row: practices.Practice) -> None:
    assert row.see
    assert row.do
    assert len(row.title) <= LONGEST_TITLE
    assert set(row.source) <= set(practices.table().sources)
    assert set(row.problems) <= set(catalog.problems())
    assert set(row.related) <= set(practices.practices()) - {row.id}
    assert (ROOT / "examples" / f"{row.example}.py").exists()
    for look in row.see:
        words = shlex.split(look.command.replace("<pid>", "4711"))
        if words[0] == "gpudoctor":
            pages.parse(words)
        for check in re.findall(r"--only ([\w-]+)", look.command):
            assert check in catalog.checks() or check in {each.area for each in catalog.checks().values()}


def test_no_name_means_two_practices_or_a_problem() -> None:
    names = [name for row in ROWS for name in (row.id, *row.also)]
    assert len(names) == len(set(names))
    assert not set(names) & set(catalog.problems())


def test_lines_of_python_parse() -> None:
    codes = [step.code for row in ROWS for step in row.do if re.match(r"with |torch\.|\w+ = |\(loss", step.code)]
    assert len(codes) > 30
    for code in codes:
        ast.parse(code + (" pass" if code.endswith(":") else ""))


@each("name", ASKED)
def test_explain_knows_it_by_name(name: str) -> None:
    done = run("explain", name)
    assert done.exit_code == 0, done.output
    assert "What to do" in done.output


def test_a_check_of_that_name_stands_first_and_the_practice_follows() -> None:
    output = run("explain", "cuda-graphs").output
    assert output.startswith("cuda-graphs: a check")
    assert "\ncuda-graphs: Replay many launches as one CUDA graph\n" in output


@pytest.mark.parametrize("words", [("pin-memory",), ("pinned", "memory"), ("Pinned_Memory",)])
def test_other_names_and_spellings(words: tuple[str, ...]) -> None:
    assert run("explain", *words).output.startswith("pinned-memory: Copy from page-locked memory")


def test_a_wrong_spelling_is_one_line_with_the_nearest() -> None:
    done = run("explain", "occupncy")
    assert done.exit_code == 2 or done.exception
    assert "did you mean occupancy?" in f"{done.output}{done.exception}"


def test_it_is_given_to_programs() -> None:
    (entry,) = json.loads(run("explain", "roofline", "--format", "json").output)["entries"]
    assert (entry["kind"], entry["id"]) == ("practice", "roofline")
    assert entry["references"][0].startswith("https://")


def test_list_shows_and_searches_them() -> None:
    assert [row["id"] for row in json.loads(run("list", "--practices", "--format", "json").output)] == [row.id for row in ROWS]
    assert run("list", "--practices", "prefetch").output.splitlines()[1].startswith("data-loading ")
    assert run("list", "--practices", "--problems").exit_code == 2


def test_the_shell_completes_them() -> None:
    context = click.Context(main)
    assert [item.value for item in completing.anything(context, main.params[0], "pinned")] == ["pinned-memory"]
