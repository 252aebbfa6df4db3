"""The command line: files and pipes are redacted, a terminal is not; the private map; what is said about it."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import machine
import pytest
from stand_in import Doctor, environment, few_checks, run
from terminal import Terminal

from gpudoctor import redaction
from gpudoctor.cli import sharing
from gpudoctor.files import snapshot
from gpudoctor.model import Reply
from gpudoctor.redaction import private_map, remembering

pytestmark = pytest.mark.slow

USER, HOST = "zorvik", "qbel-n7"
PROMPT = f"{USER}@{HOST}:~$ nvidia-smi\nNVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.\n"
SUMMARY = "Redacted: 1 value of 1 kind (1 user)"
LEAVES = "; to keep them: --no-redact or --keep KIND.\n"


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Doctor:
    few_checks(monkeypatch)
    return Doctor(monkeypatch)


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "gpudoctor" / "redaction-map.json"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    taken = machine.load("no-gpu")
    python = {**taken.replies["interpreter"].value, "executable": f"/home/{USER}/venv/bin/python"}
    path = tmp_path / "machine.json"
    path.write_bytes(snapshot.dump(replace(taken, replies={**taken.replies, "interpreter": Reply("ok", python)})))
    return path


def test_what_goes_into_a_pipe_is_judged_redacted(stub: Doctor, saved: Path) -> None:
    result = run("check", "--replay", str(saved))
    assert stub.judged[-1].replies["interpreter"].value["executable"] == "/home/user-1/venv/bin/python"
    assert result.stderr == SUMMARY + LEAVES


def test_what_goes_into_a_file_is_redacted(saved: Path, tmp_path: Path) -> None:
    for name in ("report.json", "report.md", "report.txt"):
        result = run("check", "--replay", str(saved), "--level", "quick", "-o", str(tmp_path / name))
        assert result.stderr.startswith(SUMMARY + LEAVES)
        assert "/home/user-1/venv/bin/python" in (tmp_path / name).read_text()
        assert USER not in (tmp_path / name).read_text()


def test_a_saved_snapshot_is_redacted_and_again_without_harm(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(PROMPT)
    run("explain", str(tmp_path / "log.txt"), "--save", str(tmp_path / "first.json"))
    first = (tmp_path / "first.json").read_text()
    assert "user-1@host-1" in first
    assert USER not in first
    again = run("explain", str(tmp_path / "first.json"), "--save", str(tmp_path / "second.json"))
    assert (again.stderr, (tmp_path / "second.json").read_text()) == (f"Wrote {tmp_path / 'second.json'}\n", first)


def test_what_was_redacted_is_compared_with_what_was_not(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    redacted = tmp_path / "redacted.json"
    redacted.write_bytes(snapshot.dump(redaction.redacted(snapshot.load(str(saved))).snapshot))
    monkeypatch.setattr(sharing, "goes_to_terminal", lambda destination: True)
    for pair in ((saved, redacted), (redacted, saved)):
        result = run("diff", *map(str, pair))
        assert (result.exit_code, "Nothing differs" in result.stdout) == (0, True)
    assert run("diff", str(saved), str(redacted), "--no-redact").exit_code == 1


def test_nothing_is_redacted_on_request(stub: Doctor, saved: Path, state: Path) -> None:
    result = run("check", "--replay", str(saved), "--no-redact")
    assert stub.judged[-1].replies["interpreter"].value["executable"].startswith(f"/home/{USER}")
    assert (result.stderr, state.exists()) == ("", False)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (("--keep", "users"), f"{USER}@host-1"),
        (("--keep", "users,hostname"), f"{USER}@{HOST}"),
        (("--keep", "users", "--keep", "hostname", "--redact-word", USER), f"word-1@{HOST}"),
    ],
)
def test_kinds_are_kept_and_words_go(options: tuple[str, ...], shown: str, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(PROMPT)
    run("explain", str(tmp_path / "log.txt"), "--save", str(tmp_path / "s.json"), *options)
    assert shown in (tmp_path / "s.json").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--redact-word", "8"), "too short to be redacted"),
        (("--redact-word", "580.173.02"), "a plain number can be any version"),
        (("--redact-word", "Fallen"), "'Fallen' cannot be redacted: gpudoctor uses this word in its reports"),
        (("--redact-word", "current_link"), "cannot be redacted"),
        (("--keep", "shoes"), "'shoes' is not one of environment, users, hostname"),
        (("--keep", "secrets"), "secrets cannot be kept"),
        (("--no-redact", "--keep", "users"), "--no-redact cannot be used with"),
        (("--no-redact", "--same-map"), "--no-redact cannot be used with"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], words: str) -> None:
    result = run("explain", "Xid 79", *options)
    assert result.exit_code == 2
    assert words in result.stderr


def test_the_map_is_private_and_tells_what_tokens_stand_for(saved: Path, state: Path) -> None:
    run("explain", PROMPT)
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    (words,) = json.loads(state.read_text())["reports"].values()
    assert words == {"user": {"user-1": USER}, "host": {"host-1": HOST}}


def test_reports_have_the_same_tokens_only_on_request(state: Path) -> None:
    run("explain", PROMPT)
    other = PROMPT.replace(USER, "brumm").replace(HOST, "wok-n8")
    run("explain", other + PROMPT, "--same-map")
    known = private_map.latest(private_map.read(state))
    assert known["user"] == {"user-1": USER, "user-2": "brumm"}
    state.unlink()
    run("explain", other)
    assert private_map.latest(private_map.read(state))["user"] == {"user-1": "brumm"}


def test_two_redactions_of_one_second_are_told_apart() -> None:
    empty = private_map.Map(schema=private_map.SCHEMA, reports={})
    first = private_map.added(empty, "T", {"dir": {"dir-1": "alpha", "dir-2": "one"}})
    kept = private_map.added(first, "T", {"dir": {"dir-1": "alpha"}})
    assert kept.reports["T"] == {"dir": {"dir-1": "alpha", "dir-2": "one"}}
    assert private_map.added(kept, "T", {}) == kept
    other = private_map.added(kept, "T", {"dir": {"dir-1": "beta", "dir-3": "two"}})
    assert other.reports["T"] == {"dir": {"dir-2": "one", "dir-3": "two"}}


def test_the_map_keeps_the_last_reports_only() -> None:
    found = private_map.Map(schema=private_map.SCHEMA, reports={})
    for number in range(private_map.MOST_REPORTS + 5):
        found = private_map.added(found, f"time {number}", {"user": {"user-1": f"name {number}"}})
    assert len(found.reports) == private_map.MOST_REPORTS
    assert private_map.latest(found) == {"user": {"user-1": "name 24"}}
    assert private_map.added(found, "later", {}) == found


WRONG_TOKEN = b'{"schema": "gpudoctor.redaction-map/1", "reports": {"now": {"subnet": {"subnet-zz": "10.0.0.0/24"}}}}'


@pytest.mark.parametrize(
    "content", [b"{", b'{"schema": "other/1", "reports": {}}', b'{"reports": 1}', b"\x00", b'{"schema": "\xff"}', WRONG_TOKEN]
)
def test_a_broken_map_is_said_only_where_it_is_needed(content: bytes, state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.write_bytes(content)
    result = run("explain", PROMPT, "--same-map")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {state} is not a redaction map")
    result = run("explain", PROMPT)
    assert result.exit_code == 0
    assert "It is redaction-map.json.old now, and a new one begins." in result.stderr
    assert state.with_name("redaction-map.json.old").read_bytes() == content
    assert private_map.read(state).reports


REMEMBER = """
import sys
from types import SimpleNamespace
from gpudoctor.redaction import remembering
words = {"user": {"user-1": sys.argv[1]}}
remembering.remember(sys.argv[1], SimpleNamespace(tokens=SimpleNamespace(private=lambda: words)))
"""


def test_several_add_to_the_map_at_once(state: Path) -> None:
    names = [f"zorv{letter}" for letter in "abcdef"]
    started = [subprocess.Popen([sys.executable, "-c", REMEMBER, name], env=environment()) for name in names]
    assert [process.wait(60) for process in started] == [0] * len(names)
    assert sorted(private_map.read(state).reports) == names


def test_a_map_that_cannot_be_written_costs_no_report(state: Path) -> None:
    state.parent.parent.mkdir(parents=True)
    state.parent.write_text("a file in the place of the folder")
    result = run("explain", PROMPT)
    assert result.exit_code == 0
    assert f"Warning: {state} cannot be written" in result.stderr


def test_a_terminal_shows_everything_as_it_is(state: Path, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(
        f"{HOST}:7:8 [0] NCCL WARN misc/socket.cc:50 Connect to 10.77.88.99<41321> failed : refused\n"
    )
    argv = [sys.executable, "-m", "gpudoctor", "explain", "log.txt", "-v"]
    terminal = Terminal(argv, {**environment(), "TERM": "dumb", "XDG_STATE_HOME": str(tmp_path)}, tmp_path)
    try:
        terminal.expect("10.77.88.99")
        terminal.wait()
    finally:
        terminal.close()
    assert "Redacted" not in terminal.seen
    assert not state.exists()


def test_tokens_of_a_report_that_was_redacted_here_are_recognised(state: Path) -> None:
    private_map.write(
        state,
        private_map.Map(schema=private_map.SCHEMA, reports={"now": {"gpu": {"00000001-0000-4000-8000-000000000001": "5e1f"}}}),
    )
    token = "GPU-00000001-0000-4000-8000-000000000001"
    assert remembering.recognised(token, "now") == "GPU-5e1f"
    assert remembering.recognised(token, "then") == token
    assert remembering.recognised("GPU-77", "now") == "GPU-77"
