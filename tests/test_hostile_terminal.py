"""No control character reaches a terminal, and a terminal that takes nothing loses no report."""

from __future__ import annotations

import ast
import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import machine
import pytest
from forked import Forked, run
from sources import examined, nodes, text_of

from gpudoctor import folders, screen
from gpudoctor.files import snapshot
from gpudoctor.model import Reply

ESCAPE = "\x1b]52;c;aGk=\x07\x1b[2J\x9b2J\x7f\u202e"
BASELINE = {
    "schema": "gpudoctor.baseline/1",
    "gpus": {"GPU-1" + ESCAPE: {"name": ESCAPE, "taken": ESCAPE, "figures": {ESCAPE: 1.0}}},
}


def on_a_terminal(*words: str, **variables: str) -> str:
    """What a command writes to a terminal, without ends of lines, colours and the progress line."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", **variables}
    with Forked([sys.executable, "-m", "gpudoctor", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as run:
        os.close(theirs)
        said = b""
        try:
            while data := os.read(ours, 1 << 16):
                said += data
        except OSError:  # the other end was closed
            pass
        finally:
            os.close(ours)
    assert run.returncode is not None
    return said.decode()


def controls(text: str) -> set[str]:
    text = text.replace("\r\n", "\n")
    return {letter for letter in screen._CONTROL.findall(text) if not letter.endswith("m")}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "baseline.json").write_text(json.dumps(BASELINE))
    (tmp_path / "lock").write_text(f'images:\n- "{json.dumps(ESCAPE)[1:-1]}"\n')
    for name in ("docker", "python"):
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '%s\\n' 'error {ESCAPE}' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["baseline", "show", "--file", "FILES/baseline.json"],
        ["images", "lock", "--file", "FILES/lock"],
        ["check", "--level", "quick", "--python", "FILES/python"],
        ["check", "--image", "x"],
        ["report", ESCAPE],
        [ESCAPE],
        ["check", f"--{ESCAPE}"],
        ["check", "--level", ESCAPE],
        ["explain", ESCAPE],
        ["images", "show", ESCAPE],
        ["check", "-o", ESCAPE + "/x"],
    ],
    ids=lambda words: ascii(words[0])[:9] + words[-1][:7].replace("\x1b", ""),
)
def test_what_comes_from_outside_is_shown_as_text(words: list[str], files: Path) -> None:
    said = on_a_terminal(*(word.replace("FILES", str(files)) for word in words), PATH=f"{files}:{os.environ['PATH']}")
    assert said.strip()
    assert controls(said) == set()


def test_json_stays_json() -> None:
    text = json.dumps({"a": ESCAPE, "b": "\tx\ny"}, ensure_ascii=False)
    assert json.loads(screen.tame(text)) == json.loads(text)
    assert screen.tame("\x1b[1;31mred\x1b[0m\r\n\tx\n") == "\x1b[1;31mred\x1b[0m\r\n\tx\n"


@pytest.mark.slow
def test_a_full_standard_error_loses_no_report(tmp_path: Path) -> None:
    taken = machine.load("h100-measured")
    named = {**taken.replies, "environment": Reply("ok", {"CUDA_HOME": "/home/zorv/cuda"})}
    (tmp_path / "snapshot").write_bytes(snapshot.dump(replace(taken, replies=named)))
    argv = [sys.executable, "-m", "gpudoctor", "check", "--replay", str(tmp_path / "snapshot"), "--format", "json", "--redact"]
    heard = run(argv, capture_output=True, text=True)
    assert heard.stderr.startswith("Redacted")
    with Path("/dev/full").open("w") as full:
        deaf = run(argv, stdout=subprocess.PIPE, stderr=full, text=True)
        assert (deaf.returncode, deaf.stdout) == (heard.returncode, heard.stdout)
        assert run([*argv[:4], "--nonsense"], stderr=full).returncode == 2


# These write for a program that runs in the foreground, or plain text of their own.
WRITES = {"print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write"}
WRITERS = {"screen.py", "cli/output.py", "cli/run.py", "repair/running.py", "repair/asking.py", "bootstrap.py"}


@examined
def test_there_is_one_place_that_writes_to_the_terminal() -> None:
    package = folders.package()
    for path in package.rglob("*.py"):
        name = str(path.relative_to(package))
        if name in WRITERS or name.startswith("worker/"):
            continue
        if any(word in (text := text_of(path)) for word in WRITES):
            assert not {ast.unparse(node.func) for node in nodes(text, ast.Call)} & WRITES, name
