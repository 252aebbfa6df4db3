"""Programs, libraries and Pythons that flood, lie, or leave processes behind: each costs its own answer and nothing else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from process import command_lines
from waiting import until

from gpudoctor import bootstrap, programs, protocol
from gpudoctor.collect import collect
from gpudoctor.containers.engine import client
from gpudoctor.containers.images import ending
from gpudoctor.errors import UserError, WorkError
from gpudoctor.interpreter import Interpreter
from gpudoctor.model import Reply
from gpudoctor.quoting import _asked
from gpudoctor.worker import child
from gpudoctor.worker.probes.machine import Machine, believable
from gpudoctor.worker.reply import MOST_GPUS

pytestmark = pytest.mark.slow

SLEEP = f"300.{os.getpid()}"  # to be told from others

TABLE = """
import os, subprocess, sys, time
from typing import Callable, NamedTuple
from gpudoctor.worker.reply import Reply

class Probe(NamedTuple):
    name: str
    ask: Callable
    seconds: float
    after: str = ""

def writes(machine):
    for number in range(3, 41):
        for noise in (b"x\\n", b"{}\\n", b'["question"]\\n', b"\\xff" * 100, b'{"question": 5, "reply": 7}'):
            try:
                os.write(number, noise)
            except OSError:
                pass
    yield "writes", Reply("ok", 1)

def leaves(machine):
    subprocess.Popen(["sleep", "SLEEP"], start_new_session=True)
    subprocess.Popen(["sh", "-c", "setsid sleep SLEEP & exec sleep SLEEP"])
    yield "leaves", Reply("ok", 2)

def good(machine):
    yield "good", Reply("ok", 3)

PROBES = (Probe("writes", writes, 100), Probe("leaves", leaves, 100), Probe("good", good, 100, "writes"))
""".replace("SLEEP", SLEEP)


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def asked(python: str, sources: dict[str, str] | None = None) -> dict[str, Reply]:
    replies: dict[str, Any] = {}
    job = {"seconds": 60.0, **({"sources": {**bootstrap.travelling_sources(), **sources}} if sources else {})}
    Interpreter(python).run(job, lambda message: replies.update({message.get("question", ""): message.get("reply")}))
    return {question: Reply(**reply) for question, reply in replies.items() if question}


def test_what_a_library_writes_to_our_descriptors_is_no_message() -> None:
    replies = asked(sys.executable, {"gpudoctor/worker/probes/table.py": TABLE})
    assert {name: replies[name].value for name in ("writes", "leaves", "good")} == {"writes": 1, "leaves": 2, "good": 3}
    assert {reply.status for reply in replies.values()} == {"ok"}


def test_what_leaves_its_session_is_ended() -> None:
    asked(sys.executable, {"gpudoctor/worker/probes/table.py": TABLE})
    assert until(lambda: not command_lines(of=SLEEP))


def test_what_a_python_leaves_is_ended(tmp_path: Path) -> None:
    python = program(tmp_path / "python", f"#!/bin/sh\nfor i in 1 2 3; do setsid sleep {SLEEP} & done\nexit 0\n")
    with pytest.raises(UserError, match="does not behave like Python"):
        asked(python)
    assert until(lambda: not command_lines(of=SLEEP))


def test_a_python_that_floods_is_read_and_not_kept(tmp_path: Path) -> None:
    script = f"#!{sys.executable}\nimport os\nos.write(2, b'first words\\n')\nfor _ in range(99): os.write(2, b'x' * (1 << 20))\n"
    where = Interpreter(program(tmp_path / "python", script))
    with pytest.raises(UserError, match="first words"):
        where.run({"seconds": 60.0}, lambda message: None)
    assert len(where.said()) < 100_000


@pytest.mark.parametrize("stream", [1, 2])
def test_a_program_that_floods_is_ended(stream: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flood = program(tmp_path / "docker", f"#!/bin/sh\nexec cat /dev/zero >&{stream}\n")
    with pytest.raises(programs.TooMuch):
        programs.finished([flood], 600)
    reply = Machine().command(flood, timeout=600)[1]
    assert (reply.status, reply.detail) == ("error", "it printed more than 16 MiB")
    assert _asked((flood,)).status == "error"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(WorkError, match="was killed: it printed more than 16 MiB"):
        client.find("docker")


def test_a_program_whose_child_keeps_its_output_open_has_ended(tmp_path: Path) -> None:
    shown = programs.finished(["sh", "-c", f"sleep {SLEEP} & echo $!"], 60).stdout
    os.kill(int(shown), 9)


def test_a_file_without_end_is_read_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"a" * 3_000_000 + b"end")
    text = Machine().read(str(tmp_path / "big"), 1 << 20)
    assert (len(text), text[-4:]) == (1 << 20, "aend")


def test_a_python_that_was_killed_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="killed by SIGKILL"):
        asked(program(tmp_path / "python", "#!/bin/sh\nkill -9 $$\n"))


def test_the_reason_why_nothing_was_answered_is_said(tmp_path: Path) -> None:
    text = f"""#!{sys.executable}
import json, sys
job = json.loads(sys.stdin.readline())
print(job["marker"] + '{{"hello": [3, 12, 0]}}')
sys.stderr.write("OSError: [Errno 24] Too many open files\\n")
"""
    with pytest.raises(WorkError, match=r"OSError: .* Too many open files\. The limit on open files .ulimit -n. is \d+"):
        collect(Interpreter(program(tmp_path / "python", text)), 60.0, {}, lambda names: None)


def test_another_program_is_not_shown_our_code() -> None:
    with pytest.raises(UserError) as caught:
        asked("/bin/ls")
    assert "import" not in str(caught.value)


def test_a_folder_of_programs_has_a_python(tmp_path: Path) -> None:
    (tmp_path / "python").touch()
    assert Interpreter(str(tmp_path)).path == str(tmp_path / "python")
    assert Interpreter(sys.prefix).path == f"{sys.prefix}/bin/python"


@pytest.mark.parametrize("count", [-1, MOST_GPUS + 1, 2**31 - 1])
def test_absurd_counts_of_a_driver_are_errors(count: int) -> None:
    assert believable(count) == {"raised": f"{count} is no number of GPUs"}
    assert believable(MOST_GPUS) == MOST_GPUS
    assert believable({"error": 3}) == {"error": 3}


def test_only_a_process_in_the_kernel_is_said_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for state, manner in (("D", child.STUCK), ("R", child.SLOW)):
        one = child.Child(lambda: None)
        monkeypatch.setattr(child.Child, "wait", lambda self: None)
        monkeypatch.setattr(child, "_stat", lambda pid, state=state: [state])
        assert one.killed() == manner
        monkeypatch.undo()
        one.wait(60)


def test_answers_without_end_are_read_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MOST_BYTES", 1 << 20)
    text = f"""#!{sys.executable}
import itertools, json, sys
job = json.loads(sys.stdin.readline())
for number in itertools.count():
    print(job["marker"] + json.dumps({{"hello": [3], "question": str(number), "reply": {{"value": "x" * 1000}}}}), flush=True)
"""
    heard: list[int] = []
    Interpreter(program(tmp_path / "python", text)).run({"seconds": 600.0}, lambda message: heard.append(1))
    assert 500 < len(heard) < 1100


@pytest.mark.parametrize("newline", [True, False])
def test_the_output_of_a_pull_is_read_in_pieces(newline: bool, tmp_path: Path) -> None:
    text = "x" * 300_000 + "\n" * newline
    (tmp_path / "said").write_text(text)
    with ending.started(["cat", str(tmp_path / "said")], stdout=subprocess.PIPE) as process:
        pieces = list(ending.lines(process.stdout))
    assert "".join(pieces) == text
    assert max(map(len, pieces)) == ending.MOST_CHARACTERS
