"""The worker under every Python of this machine: each way of not answering stays apart, and nothing else is lost."""

from __future__ import annotations

import ast
import errno
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from forked import Forked
from process import command_lines
from waiting import HOPELESS_SECONDS, until, with_enough_time

from gpudoctor import bootstrap, interpreter, leftovers
from gpudoctor.errors import UserError
from gpudoctor.model import Reply
from gpudoctor.worker.child import Child

pytestmark = pytest.mark.slow

OLDEST = (3, 8)

# A table of probes that misbehave, in place of the real one.
PROBES = """
import ctypes, os, sys, time
from typing import Callable, NamedTuple
from gpudoctor.worker.reply import Reply
from gpudoctor.worker.probes.machine import Machine

class Probe(NamedTuple):
    name: str
    ask: Callable
    seconds: float
    after: str = ""

def good(machine):
    print("noise on stdout", flush=True)
    os.write(1, b"more noise, as a C library makes it\\n")
    yield machine.file("/etc/hostname")
    yield "number", Reply("ok", 42)

def raises(machine):
    yield "before-raise", Reply("ok", 1)
    machine.at("bad", "step")
    raise RuntimeError("a bug in a probe")

def segfaults(machine):
    yield "before-crash", Reply("ok", 1)
    machine.at("crash", "second_step")
    if "second_step" not in machine.skip:
        ctypes.string_at(0)
    yield "crash", Reply("ok", "survived without second_step")

def always_segfaults(machine):
    machine.at("doomed", "")
    ctypes.string_at(0)
    yield "doomed", Reply("ok")

def hangs(machine):
    yield "before-hang", Reply("ok", 1)
    machine.at("hang", "forever")
    time.sleep(600)

def waits(machine):
    yield "knows", Reply("ok", machine.known["number"].value)

PROBES = (
    Probe("good", good, 100), Probe("raises", raises, 100), Probe("segfaults", segfaults, 100),
    Probe("doomed", always_segfaults, 100), Probe("hangs", hangs, 1), Probe("waits", waits, 100, after="good"),
)
"""


# Limits that a busy machine keeps as well.
PATIENT = f"\nPROBES = tuple(probe._replace(seconds={HOPELESS_SECONDS}) for probe in PROBES)\n"


@functools.cache
def pythons() -> list[str]:
    """Every interpreter of this machine from the oldest that is supported, one of each version."""
    candidates = [sys.executable, *map(str, Path.home().glob(".pyenv/versions/*/bin/python"))]
    candidates += [path for minor in range(8, 16) if (path := shutil.which(f"python3.{minor}"))]
    candidates += [path for path in ("/usr/bin/python3",) if Path(path).exists()]
    found: dict[str, str] = {}
    names: set[str] = set()
    for path in candidates:
        if (name := Path(path).resolve().name) in names:  # python3.9: a version that is known need not be asked
            continue
        version = subprocess.run([path, "-IS", "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True)
        if version.returncode == 0 and ast.literal_eval(version.stdout) >= OLDEST:
            found.setdefault(version.stdout.strip(), path)
            names |= {name} - {"python3", "python"}
    return list(found.values())


@functools.cache
def ask(python: str, probes: str | None = None, seconds: float = HOPELESS_SECONDS) -> dict[str, Reply]:
    sources = bootstrap.travelling_sources()
    sources["gpudoctor/worker/probes/table.py"] = probes or sources["gpudoctor/worker/probes/table.py"] + PATIENT
    replies: dict[str, Reply] = {}

    def hear(message: dict[str, Any]) -> None:
        if "question" in message:
            replies[message["question"]] = Reply(**message["reply"])

    interpreter.Interpreter(python).run({"seconds": seconds, "sources": sources}, hear)
    return replies


every_python = pytest.mark.parametrize("python", pythons())


@every_python
def test_every_way_of_not_answering_stays_apart(python: str) -> None:
    replies = ask(python, PROBES)
    assert replies["number"].value == 42
    assert replies["knows"].value == 42
    assert replies["before-raise"].status == replies["before-crash"].status == replies["before-hang"].status == "ok"
    assert replies["crash"].value == "survived without second_step"
    assert replies["doomed"].status == "died"
    assert "SIGSEGV" in replies["doomed"].detail
    assert replies["bad"].status == "died"
    assert replies["hang"].status == "timeout"
    assert "forever" in replies["hang"].detail
    assert replies["probe:hangs"].status == "timeout"
    assert replies["probe:good"].status == "ok"


@every_python
def test_the_real_probes_answer(python: str) -> None:
    replies = ask(python)
    probes = {question: reply for question, reply in replies.items() if question.startswith("probe:")}
    assert len(probes) >= 15
    assert {question: reply.detail for question, reply in probes.items() if reply.status != "ok"} == {}
    assert {question: reply.detail for question, reply in replies.items() if reply.status == "error"} == {}


def test_the_total_time_is_kept() -> None:
    endless = PROBES.replace('Probe("hangs", hangs, 1)', 'Probe("hangs", hangs, 500)')
    replies = with_enough_time(
        lambda seconds: ask(sys.executable, endless, seconds), lambda replies: "number" in replies and "hang" in replies
    )
    assert replies["hang"].status == "timeout"
    assert replies["number"].value == 42


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ask(sys.executable, PROBES + "\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "words"),
    [("/bin/true", "does not behave like Python"), ("/bin/cat", "does not behave"), ("/nonexistent/python", "No such file")],
)
def test_what_is_no_python_gets_one_clear_line(program: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        interpreter.Interpreter(program).run({"seconds": HOPELESS_SECONDS}, lambda message: None)
    assert "\n" not in str(caught.value)


def test_a_python_that_is_too_old_is_told_so() -> None:
    old = [path for path in Path.home().glob(".pyenv/versions/*/bin/python") if re.search(r"/(2\.7|3\.[67])\.", str(path))]
    if not old:
        pytest.skip("no Python older than 3.8 here")
    for python in old:
        with pytest.raises(UserError, match=r"older than Python 3\.8"):
            interpreter.Interpreter(str(python)).run({"seconds": HOPELESS_SECONDS}, lambda message: None)


def test_travelling_files_parse_on_the_oldest_python() -> None:
    for name, text in bootstrap.travelling_sources().items():
        if name.endswith(".py"):
            ast.parse(text, feature_version=OLDEST)


def test_the_environment_of_the_user_is_what_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-dead")
    ask.cache_clear()
    assert ask(sys.executable)["environment"].value["CUDA_VISIBLE_DEVICES"] == "GPU-dead"
    ask.cache_clear()


def test_a_killed_worker_takes_its_probes_along() -> None:
    marker = f"gpudoctor-test-{os.getpid()}"
    probes = PROBES.replace("time.sleep(600)", f"os.execvp('sleep', ['{marker}', '600'])").replace("hangs, 1)", "hangs, 500)")
    replies = with_enough_time(lambda seconds: ask(sys.executable, probes, seconds), lambda replies: "before-hang" in replies)
    assert "before-hang" in replies
    assert until(lambda: not command_lines(of=marker))


def test_an_interrupt_at_any_moment_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    for tenths in range(1, 7):
        command = [sys.executable, "-m", "gpudoctor", "check"]
        with Forked(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
            time.sleep(tenths / 12)
            process.send_signal(signal.SIGINT)
        assert list(tmp_path.glob("gpudoctor-*")) == []


def test_a_fork_that_fails_leaves_no_signal_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", full)
    with pytest.raises(OSError, match="temporarily"):
        Child(lambda: None)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


JOB = {"probes": [], "seconds": HOPELESS_SECONDS}


def test_an_interrupt_while_the_job_starts_does_not_lose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    started = []

    def interrupt(process: subprocess.Popen[bytes]) -> None:
        started.append(process)
        assert until(lambda: list(tmp_path.glob("gpudoctor-*")))
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(interpreter, "widen", interrupt)
    with pytest.raises(KeyboardInterrupt):
        interpreter.this_interpreter().run(JOB, lambda message: None)
    assert started[0].returncode is not None
    assert list(tmp_path.glob("gpudoctor-*")) == []


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_an_interrupt_while_the_job_is_tidied_up_is_not_lost(
    number: signal.Signals, raised: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    really, tidied = leftovers.remove, []

    def remove(folder: str) -> None:
        os.kill(os.getpid(), number)
        really(folder)
        tidied.append(folder)

    monkeypatch.setattr(interpreter, "remove", remove)
    with pytest.raises(raised):
        interpreter.this_interpreter().run(JOB, lambda message: None)
    assert len(tidied) == 1
    tidied.clear()
    assert interpreter.this_interpreter().run(JOB, lambda message: None, patience=HOPELESS_SECONDS) == number
    assert len(tidied) == 1


def test_being_told_to_end_twice_leaves_no_folder(tmp_path: Path) -> None:
    """Removing what was carried must not be cut off: nobody may be there any more to do it."""
    sources = {f"gpudoctor/filler/{number}.py": "" for number in range(3000)} | {
        "gpudoctor/__init__.py": "",
        "gpudoctor/worker/__init__.py": "",
        "gpudoctor/worker/main.py": "import time\ntime.sleep(600)",
    }
    job = tmp_path / "job"
    job.write_text(json.dumps({"sources": sources, "marker": "of-this-test"}))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with job.open() as stdin:
        process = subprocess.Popen(
            [sys.executable, "-c", bootstrap.BOOTSTRAP], stdin=stdin, stderr=subprocess.DEVNULL, env=environment
        )
    carried = tmp_path / "gpudoctor-of-this-test" / "gpudoctor" / "filler" / "2999.py"
    assert until(carried.exists)
    while process.poll() is None:
        process.terminate()
        time.sleep(0.001)
    assert [path.name for path in tmp_path.iterdir()] == ["job"]
