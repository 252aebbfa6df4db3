"""YAML tables as JSON in __pycache__."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from gpudoctor import compiled


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "pycache_prefix", None)
    file = tmp_path / "table.yaml"
    file.write_text("rows: [1]\nread: 2026-11-22\n")
    return file


def kept(table: Path) -> list[Path]:
    return [*table.parent.glob("__pycache__/*")]


def test_the_second_time_the_yaml_is_not_parsed(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled.as_json(table, keep=True)
    assert json.loads(first) == {"rows": [1], "read": "2026-11-22"}
    assert len(kept(table)) == 1
    monkeypatch.setattr(compiled, "of_yaml", None)
    assert compiled.as_json(table, keep=True) == first


def test_a_change_of_the_table_counts(table: Path) -> None:
    compiled.as_json(table, keep=True)
    table.write_text("rows: [2]\n")
    assert json.loads(compiled.as_json(table, keep=True)) == {"rows": [2]}
    before = table.stat().st_mtime_ns
    table.write_text("rows: [3]\n")
    os.utime(table, ns=(before + 1, before + 1))
    assert json.loads(compiled.as_json(table, keep=True)) == {"rows": [3]}


def test_nothing_is_kept_unless_bytecode_is(table: Path) -> None:
    compiled.as_json(table, keep=False)
    assert kept(table) == []


def test_a_folder_that_cannot_be_written_costs_nothing(table: Path) -> None:
    (table.parent / "__pycache__").write_text("a file where the folder should be")
    assert json.loads(compiled.as_json(table, keep=True))["rows"] == [1]


def test_make_prepares_all_tables(table: Path) -> None:
    compiled.keep_all(table.parent)
    assert len(kept(table)) == 1


def test_what_is_made_is_kept_until_a_source_changes(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "__file__", str(table.with_name("compiled.py")))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    made: list[int] = []

    def names() -> list[str]:
        made.append(1)
        return ["a", "b"]

    assert [compiled.made_once("names", [table], names) for _ in range(2)] == [["a", "b"]] * 2
    assert len(made) == 1
    os.utime(table, ns=(1, table.stat().st_mtime_ns + 1))
    compiled.made_once("names", [table], names)
    compiled.made_once("names", [table, table], names)
    assert len(made) == 3
