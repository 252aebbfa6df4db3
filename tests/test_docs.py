"""The README says what the program says: its help, its commands, its example."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import machine
import pages
import pytest
import yaml

from gpudoctor import catalog, doctor, evidence
from gpudoctor.cli import COMMANDS
from gpudoctor.report import explained as rendered
from gpudoctor.report import terminal

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def block(name: str) -> str:
    """The fenced block that follows the comment `<!-- NAME -->`."""
    found = re.search(rf"<!-- {re.escape(name)} -->\n```\w*\n(.*?)```", README, re.S)
    assert found, f"README has no block {name}"
    return found[1]


def gpudoctor(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gpudoctor", *arguments],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "80", "LANG": "C.UTF-8"},
        cwd=ROOT,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.replace("python -m gpudoctor", "gpudoctor")


def test_the_help_in_the_readme_is_the_help() -> None:
    assert block("gpudoctor check --help") == gpudoctor("check", "--help")


def test_the_example_is_what_the_program_prints() -> None:
    report = doctor.judge(machine.load("driver-library-version-mismatch"), doctor.select(catalog.checks(), "quick"))
    said = re.search(r"\(knowledge (\d{4}-\d\d-\d\d-[0-9a-f]{8})\)", block("example"))  # the tables change more often than it
    assert said
    assert block("example") == terminal.render(replace(report, knowledge=said[1]), width=80)


def measured() -> str:
    """What a report says of the measurements, without what stands before and after."""
    report = doctor.judge(machine.load("h100-measured"), doctor.select(catalog.checks(), "standard"))
    text = terminal.render(report, width=80)
    return text[text.index("Measured ") : text.rindex("\n\n")] + "\n"


def test_the_measured_example_is_what_the_program_prints() -> None:
    assert block("measured") == measured()


def compared() -> str:
    """What a report on a container says of the difference to its host, and what follows from it."""
    report = doctor.judge(machine.load("image-with-seven-of-eight-gpus"), doctor.select(catalog.checks(), "quick"))
    text = terminal.render(report, width=80)
    return text[text.index("✓ pass     on the host") : text.rindex("\n\n")] + "\n"


def test_the_example_of_a_container_is_what_the_program_prints() -> None:
    assert block("container") == compared()


def explained() -> str:
    """What is told of a job's log with the kernel's below it."""
    case = yaml.safe_load((ROOT / "tests/texts/timeout-of-a-lost-gpu.yaml").read_text())
    taken = evidence.snapshot_of(evidence.of_text(case["text"], "job.log"))
    return rendered.render(doctor.judge(taken, doctor.select(catalog.checks(), "quick")))


def test_the_example_of_a_log_is_what_the_program_prints() -> None:
    assert block("explained") == explained()


def test_the_example_in_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    session = pages.Session(tmp_path, "driver-library-version-mismatch")
    session.prepare(monkeypatch)
    exec(block("python"), {})
    assert "sudo reboot" in capsys.readouterr().out
    assert (tmp_path / "report.html").exists()


def test_every_command_is_in_the_readme() -> None:
    for command in COMMANDS:
        assert f"gpudoctor {command}" in README


@pytest.mark.parametrize(
    "line", re.findall(r"^gpudoctor (?:check|fix|report|diff|verify|run|baseline|list|explain|schema).*$", README, re.M)
)
def test_every_command_line_parses(line: str) -> None:
    command, *arguments = shlex.split(line, comments=True)[1:]
    known = gpudoctor(command, "--help")
    for option in filter(lambda argument: argument.startswith("-"), arguments):
        assert option in known


@pytest.mark.parametrize("target", re.findall(r"make ([a-z-]+)", README))
def test_every_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


@pytest.mark.parametrize("path", re.findall(r"\]\(([^)#:]+)\)", README))
def test_every_link_leads_somewhere(path: str) -> None:
    assert (ROOT / path).exists()
