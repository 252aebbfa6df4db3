"""Files made to harm, each through every command that opens files: a report or a refusal in one line, never a traceback.

tests/hostile/ keeps the files. Limits are on CPU time and memory, so that a busy machine changes nothing.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from each import in_parts
from limited import limited

from gpudoctor import explaining

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent / "hostile"
CPU_SECONDS, ADDRESS_BYTES = 60, 2 << 30


@functools.cache
def came_of(file: Path) -> list[dict[str, Any]]:
    """One process for all commands; empty if it was killed."""
    found = limited([str(file)], CPU_SECONDS, ADDRESS_BYTES, "every_command:print_all")
    commands: list[dict[str, Any]] = json.loads(found.stdout or "[]")
    return commands


@in_parts("name", sorted(path.name for path in FOLDER.iterdir()), size=4)
def test_every_command_reports_or_refuses_it(name: str) -> None:
    commands = came_of(FOLDER / name)
    assert commands
    for command in commands:
        assert command["failure"] == "", command
        assert command["code"] in (0, 1, 2, 3), command
        assert "bug" not in command["stderr"], command
        assert all(line.isprintable() for line in command["stderr"].splitlines()), command
        assert command["code"] != 2 or command["stderr"].count("\n") == 1, command


LARGE = {
    "page.html": lambda: b"<!doctype html><title>gpudoctor</title>" + b"<script " * 500_000,
    "types.html": lambda: (
        b"<!doctype html><title>gpudoctor</title>" + b'<script type="application/vnd.gpudoctor.snapshot+gzip" ' * 50_000
    ),
    "values.json.gz": lambda: gzip.compress(
        b'{"schema": "gpudoctor.snapshot/1", "taken": "2026-11-21T03:00:00Z", "version": "", "replies": '
        b'{"a": {"status": "ok", "value": [' + b"[]," * 10_000_000 + b"1]}}}"
    ),
    "names.json.gz": lambda: gzip.compress(
        b'{"schema": "gpudoctor.snapshot/1", "taken": "2026-11-21T03:00:00Z", "version": "", "replies": {}, "x": {"'
        + b"x" * 30_000_000
        + b'": 1}}'
    ),
    "zeros.gz": lambda: gzip.compress(bytes(200 << 20), 1),
    "members.gz": lambda: gzip.compress(b"") * 100_000,
    "blank.log": lambda: b"\n" * 20_000_000,
}


@pytest.mark.parametrize("name", LARGE)
def test_time_and_memory_grow_with_the_size(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(LARGE[name]())
    for command in ("report", "explain"):
        result = limited([command, str(file)], 30)
        assert result.returncode in (0, 1, 2, 3), result.stderr[-500:]
        assert "Traceback" not in result.stderr
        assert "bug" not in result.stderr


def test_a_pipe_may_begin_with_blank_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = iter([b"\n", b"\n\n", b" \n", b"RuntimeError: CUDA error: out of memory\n"])
    monkeypatch.setattr("gpudoctor.source.chunks", lambda path: pieces)
    assert explaining.gather(["-"]).replies


def test_nothing_is_waited_for_but_what_was_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    result = limited(["images", "lock", "--file", str(tmp_path / "lock")], 10)
    assert result.returncode == 2
