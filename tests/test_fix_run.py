"""`gpudoctor fix --run` at a real terminal: a broken environment, with a pip of its own that really repairs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal import Terminal
from waiting import until

pytestmark = pytest.mark.slow

PROBLEM = "cupy-multiple-packages"
PIP = """\
import pathlib, shutil, sys, time
site = pathlib.Path(__file__).parent.parent
verb, names = sys.argv[1], [word for word in sys.argv[2:] if not word.startswith("-")]
print("pip:", *sys.argv[1:], flush=True)
if (site / "slow").exists():
    (site / "started").touch()
    time.sleep(600)
if (site / "fails").exists():
    sys.exit("pip: no matching distribution")
for name in names:
    folder = site / f"{name.replace('-', '_')}-13.6.0.dist-info"
    if verb == "uninstall":
        shutil.rmtree(folder)
    else:
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text(f"Name: {name}\\n")
        (site / "cupy.py").write_text("arange = lambda n: type('A', (), {'sum': lambda self: 3})()\\n")
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """An environment into which two CuPys were installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    site = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    for name in ("cupy_cuda12x-13.6.0", "cupy_cuda13x-13.6.0", "pip-25.0"):
        (site / f"{name}.dist-info").mkdir()
        (site / f"{name}.dist-info" / "METADATA").write_text(f"Name: {name.split('-')[0]}\n")
    (site / "pip").mkdir()
    (site / "pip" / "__init__.py").touch()
    (site / "pip" / "__main__.py").write_text(PIP)
    return site


@pytest.fixture
def terminal(broken: Path, tmp_path: Path) -> Iterator[Terminal]:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "dumb", "HOME": str(tmp_path)}
    arguments = ["fix", PROBLEM, "--run", "--python", str(tmp_path / "venv")]
    opened = Terminal([sys.executable, "-m", "gpudoctor", *arguments], environment, tmp_path)
    yield opened
    opened.close()


def installed(site: Path) -> list[str]:
    return sorted(path.name.split("-")[0] for path in site.glob("cupy*.dist-info"))


def journal(tmp_path: Path) -> str:
    [file] = (tmp_path / "state" / "gpudoctor").glob("fix-*.log")
    assert file.stat().st_mode & 0o777 == 0o600
    return file.read_text()


def test_yes_repairs_checks_and_looks_again(terminal: Terminal, broken: Path, tmp_path: Path) -> None:
    terminal.expect(r"\$ .*pip uninstall -y cupy-cuda12x cupy-cuda13x && .*pip install cupy-cuda12x")
    terminal.expect(r"Run it\? \[y\]es, \[n\]o, \[q\]uit: ")
    assert installed(broken) == ["cupy_cuda12x", "cupy_cuda13x"]
    terminal.type("perhaps\n")
    terminal.expect("Run it")
    terminal.type("y\n")
    terminal.expect("pip: uninstall -y cupy-cuda12x cupy-cuda13x")
    terminal.expect("Checking that it worked")
    terminal.expect(rf"fixed: .*\({PROBLEM}\)")
    terminal.wait()
    assert installed(broken) == ["cupy_cuda12x"]
    text = journal(tmp_path)
    assert "pip: install cupy-cuda12x" in text
    assert "exit code 0 after" in text
    head, _, steps = text.partition("== Step 1")
    assert re.search(r"^Date:    \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d\nMachine: \S+, ", head, re.M)
    assert [line.split()[-1] for line in steps.splitlines() if "Run it?" in line] == ["perhaps", "y"]
    assert re.search(rf"== Looked again\n(?:.*\n)*fixed: .*\({PROBLEM}\)", steps)


def test_no_changes_nothing(terminal: Terminal, broken: Path) -> None:
    terminal.expect("Run it")
    terminal.type("n\n")
    terminal.expect("Step 1 skipped")
    terminal.expect(rf"still there: .*\({PROBLEM}\)")
    terminal.wait()
    assert installed(broken) == ["cupy_cuda12x", "cupy_cuda13x"]


def test_quit_ends_at_once(terminal: Terminal, broken: Path) -> None:
    terminal.expect("Run it")
    terminal.type("q\n")
    terminal.expect("Nothing was run")
    terminal.wait()
    assert installed(broken) == ["cupy_cuda12x", "cupy_cuda13x"]


def test_a_step_that_fails_stops_all_and_names_its_undo(terminal: Terminal, broken: Path, tmp_path: Path) -> None:
    (broken / "fails").touch()
    terminal.expect("Run it")
    terminal.type("y\n")
    terminal.expect("no matching distribution")
    terminal.expect("Step 1 failed: exit code 1. Stopping.")
    terminal.expect("Undo: .*pip install cupy-cuda12x==13.6.0 cupy-cuda13x==13.6.0")
    assert terminal.wait() == 1
    assert "no matching distribution" in journal(tmp_path)


@pytest.mark.parametrize("how", ["keyboard", "signal"])
def test_an_interruption_says_what_was_under_way(terminal: Terminal, broken: Path, tmp_path: Path, how: str) -> None:
    (broken / "slow").touch()
    terminal.expect("Run it")
    terminal.type("y\n")
    terminal.expect("pip: uninstall")
    assert until((broken / "started").exists)
    if how == "keyboard":
        terminal.type("\x03")
    else:
        terminal.process.send_signal(signal.SIGTERM)
    terminal.expect("Interrupted")
    terminal.expect("Step 1 was interrupted while running: ")
    terminal.expect("Log of all commands and their output: ")
    assert terminal.wait() == (130 if how == "keyboard" else 143)
    assert "pip: uninstall" in journal(tmp_path)


def test_interrupted_at_the_question_nothing_was_run(terminal: Terminal, broken: Path) -> None:
    terminal.expect("Run it")
    terminal.type("\x03")
    terminal.expect("Nothing was run")
    assert terminal.wait() == 130
    assert installed(broken) == ["cupy_cuda12x", "cupy_cuda13x"]
