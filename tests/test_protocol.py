"""A worker that says what no worker says: what is wrong costs its own question, and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import doctor, measure, protocol
from gpudoctor.collect import collect
from gpudoctor.containers.target.inside import attached
from gpudoctor.files import snapshot
from gpudoctor.interpreter import Interpreter
from gpudoctor.model import Reply, Snapshot
from gpudoctor.planning import Plan

GOOD = {"status": "ok", "value": {"a": {"seconds": 1, "skipped": None, "text": "ä"}}, "detail": "", "seconds": 0.25}
DEEP: Any = []
for _ in range(protocol.MOST_LEVELS):
    DEEP = [DEEP]
NO_REPLIES: dict[str, Any] = {
    "none": None,
    "list": [],
    "text": "ok",
    "empty": {},
    "without seconds": {name: value for name, value in GOOD.items() if name != "seconds"},
    "with more": {**GOOD, "color": "red"},
    "status of another type": {**GOOD, "status": ["ok"]},
    "status that is none": {**GOOD, "status": "fine"},
    "detail of another type": {**GOOD, "detail": None},
    "seconds of another type": {**GOOD, "seconds": "1"},
    "seconds that are a truth": {**GOOD, "seconds": True},
    "seconds without end": {**GOOD, "seconds": float("inf")},
    "seconds that are no number": {**GOOD, "seconds": float("nan")},
    "too many seconds": {**GOOD, "seconds": 10**400},
    "half a character": {**GOOD, "value": {"x": ["\ud800"]}},
    "half a character in a name": {**GOOD, "value": {"\udfff": 1}},
    "too deep": {**GOOD, "value": DEEP},
}
NO_MESSAGES = (
    b"{",
    b"17",
    b"null",
    b'["question"]',
    b"[" * 50_000,
    b"\xff\xfe",
    json.dumps({"question": 5, "reply": GOOD}).encode(),
    json.dumps({"question": ["a"], "reply": GOOD}).encode(),
    json.dumps({"question": "half \ud800", "reply": GOOD}).encode(),
    json.dumps({"asking": 5, "running": [1], "left": "soon", "end": "no", "pid": -1, "color": "red"}).encode(),
)
# Takes a job, and says the lines of a file, each behind the job's marker; as a shell in a container it greets before.
CHILD = """#!{python}
import json, sys
def say(line, marker):
    sys.stdout.buffer.write(b"noise\\n" + marker + line.replace(b"MARKER", marker) + b"\\n")
    sys.stdout.buffer.flush()
for greeting in {greetings!r}:
    say(greeting, {marker!r})
job = json.loads(next(line for line in sys.stdin if line.startswith("{{")))
for line in open({lines!r}, "rb"):
    say(line.rstrip(), job["marker"].encode())
"""


def lines(key: str, ids: dict[str, str]) -> list[bytes]:
    """Good and bad messages in turn. key: of what a reply is. ids: name in NO_REPLIES -> how this worker calls it."""
    said = [json.dumps({"hello": [3, 12, 0], "folder": "/nonexistent", "pid": 7}).encode()]
    said += [
        json.dumps({key: ids.get("first", "first"), "reply": GOOD}).encode(),
        *NO_MESSAGES,
        b'{"x": "' + b"x" * 200_000 + b'"}',
    ]
    said += [json.dumps({key: ids.get(name, name), "reply": given}).encode() for name, given in NO_REPLIES.items()]
    return [*said, json.dumps({key: ids.get("last", "last"), "reply": GOOD}).encode(), json.dumps({"end": True}).encode()]


def child(folder: Path, said: list[bytes], marker: bytes = b"", greetings: tuple[bytes, ...] = ()) -> str:
    """The path of a program that says these lines when it is given a job."""
    (folder / "lines").write_bytes(b"".join(line + b"\n" for line in said))
    program = folder / "python"
    settings = {"python": sys.executable, "lines": str(folder / "lines"), "marker": marker, "greetings": greetings}
    program.write_text(CHILD.format(**settings))
    program.chmod(0o755)
    return str(program)


@pytest.fixture(autouse=True)
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MOST_LINE_BYTES", 150_000)


def test_what_is_no_reply_is_an_error_of_its_question(tmp_path: Path) -> None:
    heard: list[tuple[str, ...]] = []
    taken = collect(Interpreter(child(tmp_path, lines("question", {}))), 20.0, {}, heard.append)
    assert set(taken.replies) == {"first", "last", *NO_REPLIES}
    assert taken.replies["first"] == taken.replies["last"] == Reply(**GOOD)  # type: ignore[arg-type]
    for name in NO_REPLIES:
        assert (taken.replies[name].status, taken.replies[name].value) == ("error", None), name
        assert taken.replies[name].detail.startswith("invalid reply: "), name
    assert heard == []
    (tmp_path / "machine.json").write_bytes(snapshot.dump(taken))
    assert snapshot.load(str(tmp_path / "machine.json")) == taken
    assert doctor.judge_at_its_level(taken).checks


def test_what_was_measured_is_checked_too(tmp_path: Path) -> None:
    ids = {name: f"gemm:gpu{number}" for number, name in enumerate(("first", *NO_REPLIES, "last"))}
    said = lines("measured", ids)
    wrong = ("gemm:gpu", "gemm:gpuX", "gemm:gpu0:", "plan", "gemm", "", 5)
    said[2:2] = [json.dumps({"measured": id, "reply": GOOD}).encode() for id in wrong]
    where = Interpreter(child(tmp_path, said))
    plan = Plan({"gemm": "gemm"}, ((0, 0, ()),))
    told: list[object] = []
    measured, cut_off_by = measure.measure(where, plan, "standard", 20.0, lambda names, left, seen: told.append(names))
    assert cut_off_by == 0
    assert set(measured) == {"plan", *ids.values()}
    assert {id for id, reply in measured.items() if reply.status == "ok"} == {"plan", ids["first"], ids["last"]}
    assert told == []
    assert measured["plan"].value == plan.as_value()
    taken = Snapshot("gpudoctor.snapshot/1", "0", "2026-01-01T00:00:00Z", {}, measured=measured)
    assert doctor.judge_at_its_level(taken, "full").checks


def test_a_worker_names_no_folder_but_its_own_to_be_removed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    hello = {"hello": [3, 12, 0], "pid": 7}
    for folder in (str(tmp_path / "mine"), f"{tmp_path}/gpudoctor-MARKER/../mine", 5, ["/"]):
        said = [
            json.dumps(said).encode() for said in ({**hello, "folder": folder}, {"question": "q", "reply": GOOD}, {"end": True})
        ]
        assert collect(Interpreter(child(tmp_path, said)), 20.0, {}, lambda names: None).replies
    assert (tmp_path / "mine").is_dir()


def test_a_container_that_says_what_it_likes(tmp_path: Path) -> None:
    """Its shell's words go through the same check, and none of them into a shell."""
    executed: list[str] = []
    heard: list[dict[str, Any]] = []
    greeting = json.dumps({"python": "/usr/bin/python3", "ctypes": ["?"], "broken": 7}).encode()
    folder = json.dumps({"hello": [3], "folder": '/tmp/"; reboot; "/gpudoctor-MARKER', "pid": "1; reboot"}).encode()
    said = [folder, *lines("question", {})[1:]]
    program = child(tmp_path, said, b"abc", (b'{"python": 5}', b"[]", greeting))
    with attached("a container", [program], "abc", executed.append) as inside:
        assert (inside.python, inside.has_ctypes, inside.broken) == ("/usr/bin/python3", False, "")
        inside.run({"seconds": 10.0}, heard.append)
    replies = {said["question"]: protocol.reply(said) for said in heard if "question" in said}
    assert {question for question, reply in replies.items() if reply.status == "ok"} == {"first", "last"}
    assert len(replies) == len(NO_REPLIES) + 2
    assert "pid" not in {name for said in heard for name in said}
    (script,) = executed
    assert "'/tmp/\"; reboot; \"/gpudoctor-abc'" in script


def test_every_status_of_a_worker_is_known() -> None:
    for status in protocol.STATUSES:
        assert protocol.reply({"reply": {**GOOD, "status": status}}).status == status
