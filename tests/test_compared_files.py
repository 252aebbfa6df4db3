"""`gpudoctor diff` of files as people have them; a snapshot that is redacted later; the baseline and what check says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import machine
import pytest
from stand_in import run

from gpudoctor import doctor
from gpudoctor.files import baseline, snapshot
from gpudoctor.report import schema, terminal


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two snapshots of one name in two folders, below the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for folder, case in (("good", "h100-measured"), ("bad", "no-driver")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "snapshot.json").write_bytes(snapshot.dump(machine.load(case)))
    return tmp_path


def test_files_of_one_name_are_told_apart(files: Path) -> None:
    for options in ((), ("--no-redact",)):
        shown = run("diff", "good/snapshot.json", "bad/snapshot.json", *options).stdout
        assert shown.startswith("A  ✓ pass  good/snapshot.json: ")
        assert "\nB  ✗ fail  bad/snapshot.json: " in shown


def test_what_people_compare_comes_first(files: Path) -> None:
    shown = run("diff", "good/snapshot.json", "bad/snapshot.json").stdout
    overview = shown.partition("Only in B")[0]
    assert "≠ driver   A 580.159.04; B none" in overview
    assert "≠ GPU      A 1 × NVIDIA H100 80GB HBM3; B 1 on the PCI bus" in overview
    assert "  torch    2.11.0" in overview


def test_ids_of_pci_are_those_of_lspci(files: Path) -> None:
    shown = run("diff", "good/snapshot.json", "bad/snapshot.json").stdout
    assert "vendor (10de); device (2330); class (030200)" in shown
    assert "(4318)" not in shown


def test_a_snapshot_against_a_report_follows_the_schema(files: Path) -> None:
    assert run("report", "bad/snapshot.json", "-o", "bad.json").exit_code == 0
    made = json.loads(run("diff", "good/snapshot.json", "bad.json", "--format", "json").stdout)
    assert made["only"][1][0]["fixes"]
    jsonschema.validate(made, schema.SCHEMAS["diff"]())


def test_a_snapshot_is_redacted_later(files: Path) -> None:
    taken = machine.load("no-driver")
    secret = replace(taken, replies={**taken.replies, "hostname": replace(taken.replies["uname"], value="ann@example.com")})
    Path("own.json").write_bytes(snapshot.dump(secret))
    run("check", "--replay", "own.json", "--save", "shared.json")
    assert "ann@example.com" in Path("own.json").read_text()
    assert "ann@example.com" not in Path("shared.json").read_text()
    same = [doctor.judge_at_its_level(snapshot.load(name)).diagnosis[0].problem for name in ("own.json", "shared.json")]
    assert same == ["no-driver-found"] * 2


def test_the_baseline_has_units_and_can_be_removed(files: Path) -> None:
    assert run("baseline", "save", "good/snapshot.json").exit_code == 0
    assert "GB/s\n" in run("baseline", "show").stdout
    made = json.loads(run("baseline", "show", "--format", "json").stdout)
    [uuid] = made["gpus"]
    result = run("baseline", "remove", "GPU-ffff")
    assert (result.exit_code, uuid in result.stderr) == (2, True)
    assert run("baseline", "remove", uuid[:12]).stdout.startswith("Removed 1 GPU from ")
    assert run("baseline", "show").exit_code == 2
    assert "nothing to remove" in run("baseline", "remove", "--all").stderr


def test_the_whole_baseline_is_removed_on_request_only(files: Path) -> None:
    assert run("baseline", "save", "good/snapshot.json").exit_code == 0
    for words in ((), ("",), ("GPU-", ""), ("--all", "GPU-")):
        result = run("baseline", "remove", *words)
        assert (result.exit_code, result.stdout) == (2, "")
    assert run("baseline", "show").exit_code == 0
    assert run("baseline", "remove", "--all").exit_code == 0
    assert run("baseline", "show").exit_code == 2


def test_a_baseline_without_units_is_read(files: Path) -> None:
    old = {"schema": baseline.SCHEMA, "gpus": {"GPU-1": {"name": "x", "taken": "t", "figures": {"memory read": 1.0}}}}
    Path("old.json").write_text(json.dumps(old))
    assert "memory read" in run("baseline", "show", "--file", "old.json").stdout


def test_check_says_that_a_baseline_is_used() -> None:
    taken = machine.load("h100-measured")
    report = doctor.judge_at_its_level(taken)
    uuid, figure = report.facts["gpus"][0]["uuid"], next(each[0] for each in report.measured.figures.values() if each[0].gpu == 0)
    assert "saved baseline" not in terminal.render(report)
    again = doctor.judge_at_its_level(replace(taken, baseline={uuid: {figure.what: figure.value}}))
    assert again.measured.with_baseline == 1
    assert "1 figure was also compared with the saved baseline" in " ".join(terminal.render(again).split())
