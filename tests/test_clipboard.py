"""`gpudoctor report --copy`: through whatever program has the clipboard here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import run
from stand_in import environment
from test_report import HEALTHY

from gpudoctor.report import formats

pytestmark = pytest.mark.slow


def copy(tmp_path: Path, **more: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "report.json").write_text(formats.render("json", HEALTHY))
    argv = [sys.executable, "-m", "gpudoctor", "report", "report.json", "--for", "nccl", "--copy"]
    return run(argv, env={**environment(), **more}, cwd=tmp_path, capture_output=True, text=True)


@pytest.mark.parametrize(("display", "programs"), [("DISPLAY", ("xclip",)), ("WAYLAND_DISPLAY", ("wl-copy", "wl-paste"))])
def test_the_ticket_is_on_the_clipboard(display: str, programs: tuple[str, ...], tmp_path: Path) -> None:
    for program in programs:
        (tmp_path / program).write_text(f"#!/bin/sh\ncat > {tmp_path}/held\n")
        (tmp_path / program).chmod(0o755)
    done = copy(tmp_path, **{display: ":7", "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"})
    held = (tmp_path / "held").read_text()
    assert "### NCCL Version" in held
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"Copied {len(held):,} characters to the clipboard.\n")


def test_where_there_is_none_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = copy(tmp_path, DISPLAY="", WAYLAND_DISPLAY="", PATH=str(tmp_path / "bin"))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("Error: no clipboard found")
