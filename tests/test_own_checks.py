"""Checks that are not gpudoctor's: in a folder of the user, or of an installed package."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpudoctor import catalog
from gpudoctor.cli import main

SNAPSHOT = str(Path(__file__).parent / "machines/h100-measured/snapshot.json")
OLD = """'''The driver is as new as this cluster requires.'''

from gpudoctor.model import Action, Check, Problem

OLD = Problem(id="our-driver-too-old", title="The driver is older than this cluster requires", why="Jobs expect it.",
              action=Action.INSTALL, fixes=())


def judge(facts):
    if facts.nvml.driver_version.split(".")[0] < "590":
        yield OLD.found(f"driver {facts.nvml.driver_version}")


def summary(facts):
    return f"driver {facts.nvml.driver_version}"


CHECK = Check(judge=judge, summary=summary, problems=(OLD,), needs=NEEDS)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "our_driver.py").write_text(OLD.replace("NEEDS", "('nvml',)"))
    yield tmp_path
    catalog._own.clear()
    catalog.checks.cache_clear()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_a_folder_of_checks(folder: Path) -> None:
    done = run("check", "--replay", SNAPSHOT, "--checks", str(folder), "--format", "json")
    said = json.loads(done.stdout)
    assert "our-driver-too-old" in {entry["problem"] for entry in said["diagnosis"]}
    assert {row["id"]: row["area"] for row in said["checks"]}["our-driver"] == "site"
    assert "our-driver" in run("list", "--checks", str(folder), "our-driver").stdout
    text = run("check", "--replay", SNAPSHOT, "--checks", str(folder))
    assert "✗ fail     site (our-driver)" in text.stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("import nothing_like_this", "ModuleNotFoundError"),
        ("x = 1", "AttributeError"),
        (OLD.replace("NEEDS", "('no-such-check',)"), "no such check"),
    ],
)
def test_a_file_that_is_no_check(folder: Path, content: str, words: str) -> None:
    (folder / "wrong.py").write_text(content)
    done = run("check", "--replay", SNAPSHOT, "--checks", str(folder))
    assert done.exit_code == 2
    assert words in done.output
    assert len(done.output.splitlines()) == 1


def test_what_others_can_write_is_not_run(folder: Path) -> None:
    (folder / "our_driver.py").chmod(0o666)
    done = run("list", "--checks", str(folder))
    assert done.exit_code == 2
    assert "its code is not run" in done.output


def test_a_name_that_is_taken(folder: Path) -> None:
    (folder / "driver").mkdir()
    (folder / "driver/kernel_module.py").write_text(OLD.replace("NEEDS", "()"))
    assert "there is already a check kernel-module" in run("list", "--checks", str(folder)).output


@pytest.mark.parametrize("about", ["ours-1.dist-info", "EGG-INFO"])
def test_an_installed_package(folder: Path, about: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder / "ours.egg"  # importlib.metadata knows such folders by their name
    (site / about).mkdir(parents=True)
    (site / about / ("METADATA" if "dist" in about else "PKG-INFO")).write_text("Name: ours\nVersion: 1\n")
    (site / about / "entry_points.txt").write_text(f"[{catalog.ENTRY_POINTS}]\nof-a-package = our_driver:CHECK\n")
    (folder / "our_driver.py").rename(site / "our_driver.py")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "our_driver", raising=False)
    catalog.checks.cache_clear()
    assert [problem.id for problem in catalog.checks()["of-a-package"].problems] == ["our-driver-too-old"]
