"""The README says what the program says: its help, its commands, its example."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import machine
import pages
import pytest
from each import each

from gpudoctor import catalog, doctor
from gpudoctor.cli import COMMANDS
from gpudoctor.report import terminal

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def block(name: str, page: str = "README.md") -> str:
    """The fenced block that follows the comment `<!-- NAME -->`."""
    found = re.search(rf"<!-- {re.escape(name)} -->\n```\w*\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert found, f"{page} has no block {name}"
    return found[1]


def must_show(shown: str, name: str, page: str = "README.md") -> None:
    """UPDATE_DOCS=1 writes the block, for review in the diff."""
    if os.environ.get("UPDATE_DOCS"):
        path = ROOT / page
        path.write_text(
            path.read_text().replace(f"<!-- {name} -->\n```text\n{block(name, page)}```", f"<!-- {name} -->\n```text\n{shown}```")
        )
    assert block(name, page) == shown


def test_the_readme_fits_a_first_page() -> None:
    assert len(README.splitlines()) <= 150


def test_the_example_is_what_the_program_prints() -> None:
    """The diagnosis only: what follows it counts checks, and changes with every new one."""
    report = doctor.judge(machine.load("driver-library-version-mismatch"), doctor.select(catalog.checks(), "quick"))
    text = terminal.render(report, width=80)
    start, end = text.index("DIAGNOSIS"), text.index("   More:")
    must_show(text[start:end].rstrip() + "\n", "example")


def measured() -> str:
    """What a report says of the measurements, without what stands before and after."""
    report = doctor.judge(machine.load("h100-measured"), doctor.select(catalog.checks(), "standard"))
    text = terminal.render(report, width=80)
    return text[text.index("Measured ") : text.rindex("\n\n")] + "\n"


def test_the_measured_example_is_what_the_program_prints() -> None:
    must_show(measured(), "measured", "docs/measurements.md")


def compared() -> str:
    """What a report on a container says of the difference to its host, and what follows from it."""
    report = doctor.judge(machine.load("image-with-seven-of-eight-gpus"), doctor.select(catalog.checks(), "quick"))
    text = terminal.render(report, width=80)
    return text[text.index("DIAGNOSIS") : text.index("\n\n✗ fail")] + "\n"


def test_the_example_of_a_container_is_what_the_program_prints() -> None:
    must_show(compared(), "container", "docs/containers.md")


def test_the_example_in_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    session = pages.Session(tmp_path, "driver-library-version-mismatch")
    session.prepare(monkeypatch)
    exec(block("python"), {})
    assert "sudo reboot" in capsys.readouterr().out
    assert (tmp_path / "report.html").exists()


def test_every_command_is_in_the_readme() -> None:
    for command in COMMANDS:
        assert f"gpudoctor {command}" in README


@each("line", re.findall(r"^gpudoctor (?:check|fix|report|diff|verify|run|baseline|list|explain|schema).*$", README, re.M))
def test_every_command_line_parses(line: str) -> None:
    pages.parse(shlex.split(line, comments=True))


@each("target", re.findall(r"make ([a-z-]+)", README))
def test_every_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


@each("path", re.findall(r"\]\(([^)#:]+)\)", README))
def test_every_link_leads_somewhere(path: str) -> None:
    assert (ROOT / path).exists()
