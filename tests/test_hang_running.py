"""`gpudoctor hang` on real processes that wait, each for one reason."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hanging_programs import PROGRAMS
from waiting import HOPELESS_SECONDS

from gpudoctor import catalog, doctor
from gpudoctor.jobs.hanging import looking, stacks
from gpudoctor.jobs.hanging.proc import Proc
from gpudoctor.jobs.hanging.tree import Tree
from gpudoctor.model import SNAPSHOT_SCHEMA, Diagnosis, Report, Snapshot

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
WITH_STACKS = pytest.mark.skipif(not stacks.tool(), reason="py-spy is not installed")
SECONDS = 0.3
# Program -> what /proc alone shows. The stacks add the line.
BY_PROC = {
    "fifo": "hang-nobody-writes",
    "own-pipe": "hang-nobody-writes",
    "pipe-full": "hang-output-not-read",
    "file-lock": "hang-file-lock",
    "connect": "hang-host-unreachable",
    "peer": "hang-peer-silent",
    "name": "hang-name-lookup",
    "zombie": "hang-process-ended",
    "sleeps": "program-hangs",
}
BY_STACKS = {
    "deadlock": ("hang-threads-deadlocked", "accounts at transfer (train.py:"),
    "lock": ("hang-lock-never-released", "at refresh (train.py:"),
    "fork-lock": ("hang-lock-lost-by-fork", "was forked from pid"),
    "join": ("hang-nobody-writes", "thread reader"),
    "spins": ("hang-spins", "stays at <module> (train.py:"),
    "moves": ("", "moves at"),
    "copies": ("", "moves at"),
}
pytestmark = [LINUX, pytest.mark.slow]


@contextlib.contextmanager
def running(folder: Path, names: Iterator[str] | dict[str, object]) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """All of these programs, as soon as each is about to hang."""
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in names:
            own = folder / name
            own.mkdir()
            (own / "train.py").write_text(PROGRAMS[name])
            started[name] = subprocess.Popen(
                [sys.executable, str(own / "train.py"), str(own / "x")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        for program in started.values():
            assert program.stdout
            assert program.stdout.readline() == b"ready\n"
        yield started
    finally:
        for program in started.values():
            with contextlib.suppress(OSError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            assert program.stdout
            program.stdout.close()


def judged(pid: int, seconds: float = SECONDS) -> Report:
    proc = Proc()
    tree = looking.tree_of(proc, pid, None)
    assert tree
    reply = looking.looked(proc, tree, looking.How(seconds), lambda doing: None)
    taken = Snapshot(SNAPSHOT_SCHEMA, "0", "2026-01-01T00:00:00Z", {looking.QUESTION: reply}, level="quick")
    return doctor.judge(taken, doctor.select(catalog.checks(), "quick", ("job",)))


def until(pid: int, is_right: Callable[[tuple[Diagnosis, ...]], bool]) -> tuple[Diagnosis, ...]:
    """The diagnosis as soon as the program has got where it waits: it says so just before."""
    end = time.monotonic() + HOPELESS_SECONDS
    while not is_right(found := judged(pid).diagnosis) and time.monotonic() < end:
        pass
    return found


def test_what_a_program_waits_for_is_seen_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "tool", str)
    with running(tmp_path, dict(BY_PROC)) as programs:
        for name, problem in BY_PROC.items():
            found = until(programs[name].pid, lambda entries, wanted=problem: [entry.problem for entry in entries] == [wanted])  # type: ignore[misc]
            assert (name, [entry.problem for entry in found]) == (name, [problem])


def test_a_stopped_program_is_named_and_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "tool", str)
    with running(tmp_path, {"moves": None}) as programs:
        pid = programs["moves"].pid
        os.kill(pid, signal.SIGSTOP)
        (entry,) = until(pid, lambda entries: [entry.problem for entry in entries] == ["hang-process-stopped"])
        assert entry.fixes[0].command == f"kill -CONT {pid}"
        assert "T (stopped)" in Path(f"/proc/{pid}/status").read_text()
        os.kill(pid, signal.SIGCONT)
        report = judged(pid)
        assert report.diagnosis == ()
        (row,) = (row for row in report.checks if row.id == "hang")
        assert (row.status.value, "py-spy is not installed" in row.message) == ("skip", True)


@WITH_STACKS
def test_the_stacks_tell_who_waits_for_whom_and_where(tmp_path: Path) -> None:
    with running(tmp_path, dict(BY_STACKS)) as programs:
        for name, (problem, words) in BY_STACKS.items():
            report = judged(programs[name].pid, 1.0)
            assert (name, [entry.problem for entry in report.diagnosis]) == (name, [problem] if problem else [])
            assert Path("/proc/self/task", str(os.getpid()), "children").read_text().split() == [
                str(program.pid) for program in programs.values()
            ]
            told = [entry.message for entry in report.diagnosis] + [row.message for row in report.checks if row.id == "hang"]
            assert any(words in message for message in told), told


@pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another user")
def test_a_process_that_ends_or_is_closed_to_the_user_is_no_error(tmp_path: Path) -> None:
    with running(tmp_path, {"sleeps": None}) as programs:
        pid = programs["sleeps"].pid
        proc = Proc()
        tree = looking.tree_of(proc, pid, None)
        assert tree
        os.killpg(pid, signal.SIGKILL)
        programs["sleeps"].wait()
        reply = looking.looked(proc, tree, looking.How(0.2), lambda doing: None)
        assert reply.value["processes"][0]["states"][-1] == "X"
    assert _denied_to_nobody(1) == [1]


def _denied_to_nobody(pid: int) -> list[int]:
    """The processes that the user nobody may not look into."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setuid(65534)
            proc = Proc()
            reply = looking.looked(proc, Tree("", (pid,), proc.everyone(), 0), looking.How(0.2), lambda doing: None)
            os.write(writer, json.dumps(reply.value["denied"]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as said:
        denied: list[int] = json.load(said)
    return denied


@WITH_STACKS
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_ranks_with_gloo_are_told_apart(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "hanging.py"
    argv = [
        sys.executable,
        str(script),
        "--backend",
        "gloo",
        "--only",
        "early,differ,stopped",
        "--keep",
        str(tmp_path),
        "--seconds",
        "2",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["program"], row.get("found")) for row in rows] == [
        ("early", ["hang-rank-behind"]),
        ("differ", ["hang-collectives-differ"]),
        ("stopped", ["hang-process-stopped"]),
    ]
