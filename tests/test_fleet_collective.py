"""`fleet collective` names the slow node, separates what fails from what is slow, and leaves no process anywhere.

torch is a stand-in here: its launcher reports a speed. tests/test_halving.py has the search alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from each import each
from forked import Forked
from jsonschema import Draft202012Validator
from process import command_lines
from stand_in import environment, run

from gpudoctor.fleet import collective, confirming
from gpudoctor.fleet.said import Said, doubts, outcome
from gpudoctor.report import schema

RUN = """
import json, os, subprocess, sys, time
node = os.environ["GPUDOCTOR_NODE"]
if node == os.environ.get("HANGS"):
    subprocess.Popen(["sleep", os.environ["SLEEPS"]], start_new_session=True)
    time.sleep(60)
if node == os.environ.get("FAILS"):
    sys.exit("RuntimeError: NCCL error: unhandled system error")
speed = 20.0 if node == os.environ.get("SLOW") else 100.0
row = {"what": "all-reduce", "bytes": 1 << 20, "seconds": 0.1, "gb_per_s": speed, "wrong": False}
turns = json.loads(sys.argv[-1]).get("turns")
for turn in range(4 if turns else 1):
    for number, nodes in enumerate(turns["groups"] if turns else []):
        if node == nodes[0]:
            told = {**row, "gb_per_s": 20.0 if os.environ.get("SLOW") in nodes else 100.0, "turn": [turn, number]}
            print(json.dumps(told), flush=True)
if not turns:
    print(json.dumps(row), flush=True)
"""


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "torch" / "distributed"
    package.mkdir(parents=True)
    for file in (package.parent / "__init__.py", package / "__init__.py"):
        file.touch()
    (package / "run.py").write_text(RUN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{environment()['PYTHONPATH']}")
    return tmp_path


def asked(*more: str) -> list[str]:
    return ["fleet", "collective", "-w", "n[1-4]", "--engine", "local", "--python", sys.executable, *more]


@pytest.mark.slow
@each(
    ("variable", "code", "named"),
    [("SLOW", 1, {"n3"}), ("FAILS", 1, {"n3"})],
)
def test_the_node_at_fault_is_named(variable: str, code: int, named: set[str], torch: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(variable, "n3")
        patch.setattr(collective, "GRACE_SECONDS", 0.3)
        patch.setattr(confirming, "TIMES", 1)
        result = run(*asked("--format", "json"))
    told = json.loads(result.stdout)
    assert (result.exit_code, set(told["named"])) == (code, named), told
    assert len(told["rounds"]) <= 3
    assert [one["is_bad"] for one in told["repeated"]] == [True]
    Draft202012Validator(schema.of_collective()).validate(told)


def test_a_python_without_torch_is_told_apart() -> None:
    result = run(*asked("--python", "/no/such/python"))
    assert result.exit_code == 3
    assert "/no/such/python" in result.stdout


FLOODS = """#!/bin/sh
case $GPUDOCTOR_NODE in
  n1) exec tr '\\0' x </dev/zero ;;
  n2) read -r program; read -r job; m=$(printf %s "$job" | sed 's/.*"marker": "//; s/".*//')
      printf '%s{"hello": [3, 11]}\\n%s{"done": "x", "nccl": 3}\\n%s{"rank": {"gb_per_s": "\\\\ud800"}}\\n' $m $m $m
      printf '%s{"done": 1, "words": "\\\\u001b[2J wiped", "nccl": [], "adapters": []}\\n' $m ;;
  *) exec sleep 621 ;;
esac
"""


def test_nodes_that_flood_lie_or_hang_are_bounded_and_named(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(FLOODS)
    python.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collective, "OUTER_SECONDS", -18)
        result = run(*asked("--python", str(python), "--timeout", "5", "--format", "json"))
    told = json.loads(result.stdout)
    assert (result.exit_code, told["status"]) == (3, "not-run")
    assert told["silent"] == {
        "n1": "its output is too long",
        "n2": "\\x1b[2J wiped",
        "n3": "the time limit passed",
        "n4": "the time limit passed",
    }
    assert not command_lines("sleep 621")


def test_nothing_is_left_when_the_caller_is_killed(torch: Path) -> None:
    length = f"6{os.getpid() % 10000:04}"
    variables = {**environment(), "PYTHONPATH": os.environ["PYTHONPATH"], "HANGS": "n2", "SLEEPS": length}
    process = Forked([sys.executable, "-m", "gpudoctor", *asked()], env=variables, stderr=subprocess.PIPE)
    try:
        wait(lambda: bool(command_lines(f"sleep {length}")), "the rank does not start")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    wait(lambda: not command_lines(f"sleep {length}"), "the rank is still running")
    wait(lambda: not [line for line in command_lines("").values() if str(torch) in line], "a launcher is still running")


def wait(until, what: str) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + 20
    while not until():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def said(*lines: str, ports: bool = True) -> Said:
    adapter = {"name": "mlx5_0:1", "kind": "InfiniBand", "active": ports, "rate": "400 Gb/sec"}
    return Said(True, [], 0, "", list(lines), [adapter])


def row(figure: float, size: int = 1 << 20, wrong: bool = False) -> dict[str, object]:
    return {"what": "all-reduce", "bytes": size, "seconds": 0.1, "gb_per_s": figure, "wrong": wrong}


def test_the_largest_size_counts_and_a_wrong_result_is_a_failure() -> None:
    fine = Said(True, [row(1, 1024), row(90)], 0)
    assert outcome({"a": fine, "b": Said(True, [], 0)}, 2).figure == 90
    assert outcome({"a": fine, "b": Said(True, [row(90, wrong=True)], 0)}, 2).words == "wrong result of all-reduce"
    late = Said(True, [], -9, "the time limit of 5 s passed")
    assert outcome({"a": late, "b": Said(True, [], 1, "NCCL error")}, 2).words == "NCCL error"
    assert outcome({"a": fine, "b": late}, 2).figure == 90


SOCKET = "NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"
OVER_IB = "NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA"


def test_tcp_in_spite_of_infiniband_is_a_doubt() -> None:
    assert "NET/Socket" in doubts({"a": said(SOCKET), "b": said()})[0]
    assert doubts({"a": said(OVER_IB), "b": said()}) == []
    assert doubts({"a": said(SOCKET, ports=False), "b": said(ports=False)}) == []


def test_a_port_that_is_down_on_one_node_is_a_doubt() -> None:
    (doubt,) = doubts({"a": said(), "b": said(), "c": said(ports=False)})
    assert doubt.startswith("c: mlx5_0:1 is not active")


@each("words", [("-w", "n1"), ("-w", "n[1"), ("-w", ""), ("-w", "n[1-2]", "--sizes", "many"), ("-w", "n[1-2]", "--sizes", "1")])
def test_wrong_usage_is_one_line(words: tuple[str, ...]) -> None:
    result = run("fleet", "collective", *words)
    assert result.exit_code == 2
    assert "Error: " in result.stderr
