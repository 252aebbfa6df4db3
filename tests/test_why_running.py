"""One run of a user's command: its streams, signals, limits and end, and that nothing of it stays."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from process import command_lines
from terminal import Terminal
from waiting import until

from gpudoctor.errors import UserError
from gpudoctor.judging.experiments.suspect import FOLDER, LIMIT, VARIABLE, Surroundings, Suspect
from gpudoctor.trying import laboratory, output
from gpudoctor.trying.laboratory import ThisMachine
from gpudoctor.trying.output import Output
from gpudoctor.trying.start import LONGER, REACHED, STOPPED, TIMEOUT, Goal, Ran

pytestmark = pytest.mark.slow

ENDLESS = "while :; do sleep 1; done"


def here(*argv: str, **variables: str) -> ThisMachine:
    return ThisMachine(argv, {**os.environ, **variables})


def again(*argv: str, goal: Goal | None = None, **variables: str) -> Ran:
    return laboratory.again(here(*argv, **variables), (), Surroundings(), goal or Goal()).ran


def gone(mark: str) -> bool:
    """Waits until no process has the mark in its command line or environment."""
    return until(lambda: not command_lines(mark))


def test_the_first_run_copies_both_streams_and_has_the_users_input(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "input"
    file.write_text("typed\n")
    before = os.dup(0)
    with file.open() as opened:
        os.dup2(opened.fileno(), 0)
    try:
        attempt = laboratory.first(here("sh", "-c", "cat; echo wrong >&2; exit 3"), Goal(), 1, 2)
    finally:
        os.dup2(before, 0)
        os.close(before)
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("typed\n", "wrong\n")
    assert (attempt.ran.code, attempt.ended_by) == (3, 0)
    assert Goal().verdict(attempt.ran) == "ended with exit code 3"
    assert {*attempt.ran.text.split()} == {"typed", "wrong"}


def test_a_repeat_has_neither_input_nor_terminal_and_copies_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    ran = again("sh", "-c", "cat; test -t 1 || echo no terminal")
    assert (ran.text, ran.code) == ("no terminal\n", 0)
    assert capfd.readouterr() == ("", "")


def test_a_crash_has_the_words_that_a_shell_prints() -> None:
    ran = again("sh", "-c", "kill -SEGV $$")
    assert (Goal().verdict(ran), ran.words) == ("was killed by SIGSEGV", "Segmentation fault")


@pytest.mark.parametrize("script", ["sleep 600", f"trap '' INT TERM; {ENDLESS}", "setsid sleep 600 & wait"])
def test_what_hangs_is_ended_with_its_children(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.trying.running.GRACE_SECONDS", 0.2)
    mark = f"WHY_{os.urandom(4).hex()}"
    ran = again("sh", "-c", script, goal=Goal(timeout=0.3), MARK=mark)
    assert ran.stopped == TIMEOUT
    assert Goal(timeout=0.3).verdict(ran) == "did not end within 0.3 s"
    assert any("waiting" in line for line in ran.waiting)
    assert gone(mark)


def test_a_hanging_python_prints_where_it_was() -> None:
    ran = again(sys.executable, "-c", "import time\nprint('ready', flush=True)\ntime.sleep(600)", goal=Goal(timeout=1.5))
    assert "ready" in ran.text
    assert "KeyboardInterrupt" in ran.text


def test_daemons_of_a_failed_command_are_ended_and_named() -> None:
    mark = f"WHY_{os.urandom(4).hex()}"
    ran = again("sh", "-c", "setsid sh -c 'sleep 600 & exec sleep 601' & sleep 0.1; exit 1", MARK=mark)
    assert ran.code == 1
    assert "sleep" in ran.left
    assert gone(mark)


def test_a_daemon_of_a_command_that_works_stays_in_the_users_own_run() -> None:
    mark = f"WHY_{os.urandom(4).hex()}"
    attempt = laboratory.first(here("sh", "-c", "sleep 600 >/dev/null 2>&1 &", MARK=mark), Goal(), 1, 2)
    left = command_lines(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert (attempt.ran.code, len(left)) == (0, 1)


def test_until_ends_a_command_that_got_far_enough() -> None:
    goal = Goal(until=re.compile(r"step 2$"))
    ran = again("sh", "-c", f"echo step 1; echo step 2; {ENDLESS}", goal=goal)
    assert (ran.stopped, goal.verdict(ran)) == (REACHED, "")
    early = again("echo", "step 1", goal=goal)
    assert goal.verdict(early) == "ended without the output that --until expects"


def test_a_repeat_that_runs_far_longer_works() -> None:
    goal = Goal(longer=0.2)
    ran = again("sleep", "600", goal=goal)
    assert (ran.stopped, goal.verdict(ran)) == (LONGER, "")


@pytest.mark.parametrize(
    ("printed", "failure"),
    [
        ("1.5 it/s\n2,000.5 it/s", ""),
        ("2000 it/s\n7 it/s", "reached 7, less than 100"),
        ("nothing", "printed no number that --metric matches"),
    ],
)
def test_the_last_number_of_the_metric_counts(printed: str, failure: str) -> None:
    goal = Goal(metric=re.compile(r"([0-9.,]+) it/s"), at_least=100)
    assert goal.verdict(again("printf", printed, goal=goal)) == failure


def test_output_is_bounded_and_its_beginning_and_end_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "HEAD_BYTES", 10)
    monkeypatch.setattr(output, "TAIL_BYTES", 10)
    kept = Output(metric=re.compile("n=([0-9]+)"))
    for piece in (b"beginning ", b"\x00\xff" * 500, b"n=7\n", b"the end\n"):
        kept.take(piece, 1)
    assert kept.kept().startswith(b"beginning \n[gpudoctor: 1002 bytes left out]\n")
    assert kept.kept().endswith(b"the end\n")
    assert kept.figure == 7


def test_endless_binary_output_is_read_and_dropped() -> None:
    ran = again("sh", "-c", "head -c 9000000 /dev/zero; exit 1")
    assert (ran.code, ran.dropped > 4 << 20, len(ran.output) < 5 << 20) == (1, True, True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no-such-program", "no-such-program: command not found"),
        ("/etc/passwd", "/etc/passwd cannot be run: Permission denied"),
        ("/", "/ cannot be run: Permission denied"),
    ],
)
def test_what_cannot_be_run_is_one_line(name: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        again(name)


def test_a_file_that_is_no_program_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(UserError, match="has no #! line"):
        again(str(tmp_path / "text"))


def test_suspects_are_taken_away_from_the_repeat_alone(tmp_path: Path) -> None:
    away = [Suspect(VARIABLE, "BROKEN", "1"), Suspect(FOLDER, "TMPDIR", str(tmp_path)), Suspect(LIMIT, "stack", "8192")]
    place = here("sh", "-c", 'echo "${BROKEN-unset}"; echo x > "$TMPDIR/x"; echo "$TMPDIR"', BROKEN="1", TMPDIR=str(tmp_path))
    ran = laboratory.again(place, away, Surroundings(variables=place.variables), Goal()).ran
    unset, folder = ran.text.split()
    assert unset == "unset"
    assert not Path(folder).exists()
    assert [*tmp_path.iterdir()] == []


def test_a_signal_ends_a_repeat_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        timer.start()
        attempt = laboratory.again(here("sleep", "600"), (), Surroundings(), Goal())
    finally:
        timer.join()
        signal.signal(signal.SIGTERM, before)
    assert (attempt.ran.stopped, attempt.ended_by) == (STOPPED, signal.SIGTERM)


DRIVER = """
import os, sys
from gpudoctor.trying import laboratory
from gpudoctor.trying.laboratory import ThisMachine
from gpudoctor.trying.start import Goal
ran = laboratory.first(ThisMachine(tuple(sys.argv[1:]), dict(os.environ)), Goal(), 1, 2).ran
print("code", ran.code)
"""


@pytest.fixture
def on_terminal(tmp_path: Path) -> Callable[..., Terminal]:
    return lambda *argv: Terminal([sys.executable, "-c", DRIVER, *argv], dict(os.environ), tmp_path)


def test_a_command_has_a_terminal_of_the_same_size_and_its_keys(on_terminal: Callable[..., Terminal]) -> None:
    there = on_terminal("sh", "-c", "stty size; read name; echo hello $name; exec sleep 600")
    there.expect("33 101")
    there.type("bob\n")
    there.expect("hello bob")
    there.type("\x03")
    there.expect("code -2")
    assert there.wait() == 0


def test_a_killed_gpudoctor_leaves_nothing(on_terminal: Callable[..., Terminal]) -> None:
    mark = f"WHY_{os.urandom(4).hex()}"
    there = on_terminal("env", f"MARK={mark}", "sh", "-c", "setsid sleep 600 & trap '' HUP TERM; echo started; wait; sleep 600")
    there.expect("started")
    there.process.kill()
    assert there.wait() == -signal.SIGKILL
    assert gone(mark)
