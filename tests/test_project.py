"""What an open project has: files that say how to contribute, forms, workflows, and that these say what is there."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from gpudoctor.cli import COMMANDS
from gpudoctor.version import __version__

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
CLASSIFIERS = metadata.metadata("gpudoctor").get_all("Classifier", [])
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")


def test_the_changelog_has_this_version_and_a_place_for_the_next() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[:2] == ["Unreleased", __version__]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_is_there_with_the_least_rights(path: Path) -> None:
    text = path.read_text()
    described = yaml.safe_load(text)
    assert described["permissions"] == {"contents": "read"}
    assert set(re.findall(r"- run: make ([a-z -]+)$", text, re.M)) <= set(TARGETS) | {"lint test-fast wheel"}


def test_the_tests_run_on_every_python_that_is_promised() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    promised = [found[1] for each in CLASSIFIERS if (found := re.search(r"Python :: (3\.\d+)$", each))]
    assert workflow["jobs"]["fast"]["strategy"]["matrix"]["python"] == promised


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_is_whole(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert form["name"]
    assert form["description"]
    for field in form["body"]:
        assert field["type"] in ("textarea", "input", "markdown")
        assert field["attributes"]["label"]
    for command in re.findall(r"`gpudoctor (\w+)", path.read_text()):
        assert command in COMMANDS


def test_the_bug_form_asks_for_the_report() -> None:
    assert "gpudoctor report --for github" in (ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_names_only_what_is_there(name: str) -> None:
    text = (ROOT / name).read_text()
    for path in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / path).exists(), path
    for target in re.findall(r"`?make ([a-z-]+)", text):
        assert target in TARGETS, target
    for path in re.findall(r"`((?:tests|checks|gpudoctor|docs)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path


def test_the_hooks_run_the_linters_of_the_makefile() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks} >= {"ruff", "mypy", "pytest"}
