"""The command line: what is shared is redacted, what its owner reads is not; the private map; what is said about it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import machine
import pytest
from stand_in import Doctor, environment, few_checks, run
from terminal import Terminal

import gpudoctor
from gpudoctor import redaction
from gpudoctor.files import snapshot
from gpudoctor.model import Reply, Snapshot
from gpudoctor.redaction import private_map, remembering

pytestmark = pytest.mark.slow

USER, HOST = "zorvik", "qbel-n7"
PROMPT = f"{USER}@{HOST}:~$ nvidia-smi\nNVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.\n"
REFUSED = f"{HOST}:7:8 [0] NCCL WARN misc/socket.cc:50 Connect to 10.77.88.99<41321> failed : refused\n"
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


@pytest.mark.parametrize(("options", "variable"), [(("--redact",), ""), ((), "1"), ((), "TRUE"), (("--keep", "hostname"), "")])
def test_what_is_printed_is_redacted_on_request(
    options: tuple[str, ...], variable: str, stub: Doctor, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUDOCTOR_REDACT", variable)
    result = run("check", "--replay", str(saved), *options)
    assert stub.judged[-1].replies["interpreter"].value["executable"] == "/home/user-1/venv/bin/python"
    assert result.stderr == SUMMARY + LEAVES


def test_what_its_owner_reads_is_as_it_is(saved: Path, state: Path, tmp_path: Path) -> None:
    (tmp_path / f"{USER}.txt").write_text(REFUSED)
    for words in (("check", "--level", "quick", "--replay", str(saved)), ("explain", "-v", str(tmp_path / f"{USER}.txt"))):
        result = run(*words)
        assert (USER in result.stdout, result.stderr) == (True, "")
    other = written(machine.load("no-gpu"), saved.with_name("other.json"))
    assert USER in run("diff", str(saved), str(other), "-v").stdout
    assert not state.exists()


def test_minus_o_says_whether_the_file_is_redacted(saved: Path, tmp_path: Path) -> None:
    for name in ("report.json", "report.md", "report.txt", "report.html"):
        path = tmp_path / name
        result = run("check", "--replay", str(saved), "--level", "quick", "-o", str(path))
        assert f"\nWrote {path}, not redacted: --redact makes it safe to share\n" in result.stderr
        assert f"/home/{USER}/venv/bin/python" in path.read_text()
        for words in (("check", "--replay", str(saved), "--redact"), ("report", str(saved))):
            result = run(*words, "--level", "quick", "-o", str(path))
            assert f"\nWrote {path}, {SUMMARY.lower()}\n" in result.stderr
            assert "/home/user-1/venv/bin/python" in path.read_text()
            assert USER not in path.read_text()


def test_a_snapshot_and_a_bundle_are_redacted_and_say_so(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(REFUSED)
    path, bundle = tmp_path / "s.json", tmp_path / "b.tar.gz"
    result = run("explain", str(tmp_path / "log.txt"), "-v", "--save", str(path), "--keep", "paths")
    assert result.stderr == f"Wrote {path}, redacted: 2 values of 2 kinds (1 host, 1 address)\n"
    assert ("10.77.88.99" in result.stdout, "10.77.88.99" in path.read_text()) == (True, False)
    assert run("report", str(saved), "--bundle", str(bundle)).stderr.endswith(f"\nWrote {bundle}, {SUMMARY.lower()}\n")
    result = run("explain", str(tmp_path / "log.txt"), "--save", str(path), "--no-redact")
    assert result.stderr == f"Wrote {path}, not redacted: --redact makes it safe to share\n"


def test_a_variable_that_is_neither_yes_nor_no_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUDOCTOR_REDACT", "maybe")
    result = run("explain", PROMPT)
    assert (result.exit_code, result.stderr) == (2, "Error: GPUDOCTOR_REDACT=maybe is neither 1 nor 0\n")


def test_a_report_says_that_names_in_its_commands_are_tokens(tmp_path: Path) -> None:
    taken = machine.load("no-gpu")
    variables = {**taken.replies["environment"].value, "LD_LIBRARY_PATH": f"/home/{USER}/libs:."}
    given = replace(taken, replies={**taken.replies, "environment": Reply("ok", variables)})
    path = tmp_path / "m.json"
    path.write_bytes(snapshot.dump(given))
    note = "Names in commands are replaced by tokens, such as user-1."
    for form in ("text", "markdown", "html"):
        assert note in " ".join(run("report", str(path), "--format", form).stdout.split())
        assert note not in " ".join(run("report", str(path), "--format", form, "--no-redact").stdout.split())
    shown = run("check", "--replay", str(path)).stdout
    assert f"export LD_LIBRARY_PATH=/home/{USER}/libs" in shown


def test_a_fix_of_a_redacted_snapshot_has_the_names_that_this_machine_knows(tmp_path: Path, state: Path) -> None:
    taken = machine.load("no-gpu")
    variables = {**taken.replies["environment"].value, "LD_LIBRARY_PATH": f"/home/{USER}/libs:."}
    plain, path = tmp_path / "plain.json", tmp_path / "m.json"
    plain.write_bytes(snapshot.dump(replace(taken, replies={**taken.replies, "environment": Reply("ok", variables)})))
    gpudoctor.load(plain).save(path)
    assert USER not in path.read_text()
    assert f"/home/{USER}/libs" in run("fix", "--replay", str(path)).stdout
    state.unlink()
    assert "/home/user-1/libs" in run("fix", "--replay", str(path)).stdout


def test_two_redacted_files_of_this_machine_are_compared_by_their_names(tmp_path: Path) -> None:
    alone, later = ({"a": f"/home/{USER}/a"}, {"0": "/home/brumm/x", "a": f"/home/{USER}/a"})
    paths = [tmp_path / "one.json", tmp_path / "other.json"]
    for path, values, day in zip(paths, (alone, later), ("2025-01-01T00:00:00Z", "2025-01-02T00:00:00Z"), strict=True):
        taken = replace(machine.load("no-gpu"), taken=day)
        gpudoctor.load(written(replace(taken, replies={**taken.replies, "text": Reply("ok", values)}), path)).save(path)
    assert "user-2" in paths[1].read_text()
    for pair in (paths, paths[::-1]):
        shown = run("diff", *map(str, pair), "-v")
        assert ("brumm" in shown.stdout, USER in shown.stdout, "/home/user-1/a" in shown.stdout) == (False, False, False)


def written(taken: Snapshot, path: Path) -> Path:
    path.write_bytes(snapshot.dump(taken))
    return path


def test_a_saved_snapshot_is_redacted_and_again_without_harm(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(PROMPT)
    run("explain", str(tmp_path / "log.txt"), "--save", str(tmp_path / "first.json"))
    first = (tmp_path / "first.json").read_text()
    assert "user-1@host-1" in first
    assert USER not in first
    again = run("explain", str(tmp_path / "first.json"), "--save", str(tmp_path / "second.json"))
    assert again.stderr == f"Wrote {tmp_path / 'second.json'}, redacted: nothing private was left in it\n"
    assert (tmp_path / "second.json").read_text() == first


def test_what_was_redacted_is_compared_with_what_was_not(saved: Path, tmp_path: Path) -> None:
    redacted = tmp_path / "redacted.json"
    redacted.write_bytes(snapshot.dump(redaction.redacted(snapshot.load(str(saved))).snapshot))
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
    run("explain", PROMPT, "--redact")
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    (words,) = json.loads(state.read_text())["reports"].values()
    assert words == {"user": {"user-1": USER}, "host": {"host-1": HOST}}


def test_reports_have_the_same_tokens_only_on_request(state: Path) -> None:
    run("explain", PROMPT, "--redact")
    other = PROMPT.replace(USER, "brumm").replace(HOST, "wok-n8")
    run("explain", other + PROMPT, "--same-map")
    known = private_map.latest(private_map.read(state))
    assert known["user"] == {"user-1": USER, "user-2": "brumm"}
    state.unlink()
    run("explain", other, "--redact")
    assert private_map.latest(private_map.read(state))["user"] == {"user-1": "brumm"}


def test_two_redactions_of_one_second_are_told_apart() -> None:
    empty = private_map.Map(schema=private_map.SCHEMA, reports={})
    first = private_map.added(empty, "T", {"dir": {"dir-1": "alpha", "dir-2": "one"}})
    kept = private_map.added(first, "T", {"dir": {"dir-1": "alpha"}})
    assert kept.reports["T"] == {"dir": {"dir-1": "alpha", "dir-2": "one"}}
    assert private_map.added(kept, "T", {}) == kept
    other = private_map.added(kept, "T", {"dir": {"dir-1": "beta", "dir-3": "two"}})
    assert other.reports["T"] == {"dir": {"dir-2": "one", "dir-3": "two"}}


def test_the_map_keeps_all_reports_that_it_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = private_map.Map(schema=private_map.SCHEMA, reports={})
    for number in range(40):
        found = private_map.added(found, f"time {number}", {"user": {"user-1": f"name {number}"}})
    assert len(found.reports) == 40
    monkeypatch.setattr(private_map, "MOST_BYTES", 500)
    found = private_map.added(found, "time 40", {"user": {"user-1": "name 40"}})
    assert 2 < len(found.reports) < 20
    assert private_map.known(found, "time 0") == {}
    assert private_map.latest(found) == {"user": {"user-1": "name 40"}}
    assert private_map.added(found, "later", {}) == found


def test_reports_with_the_same_tokens_take_no_more_room() -> None:
    found = private_map.Map(schema=private_map.SCHEMA, reports={})
    alpha, beta = ({"user": {"user-1": name}} for name in ("alpha", "beta"))
    for number in range(1000):
        found = private_map.added(found, f"time {number}", beta if number == 500 else alpha)
    assert len(found.reports) == 2
    assert private_map.latest(found) == alpha
    assert [private_map.known(found, f"time {number}") for number in (0, 500, 999)] == [alpha, beta, alpha]
    found = private_map.added(found, "time 0", {"user": {"user-2": "gamma"}})  # the same report, redacted once more
    assert private_map.known(found, "time 0") == {"user": {"user-1": "alpha", "user-2": "gamma"}}
    assert private_map.known(found, "time 1") == alpha


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
    result = run("explain", PROMPT, "--redact")
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
    result = run("explain", PROMPT, "--redact")
    assert result.exit_code == 0
    assert f"Warning: {state} cannot be written" in result.stderr


def test_a_terminal_shows_everything_as_well(state: Path, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(REFUSED)
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


def test_a_user_without_a_home_loses_only_the_map(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", str)
    result = run("explain", PROMPT, "--save", str(tmp_path / "s.json"))
    assert result.exit_code == 0
    assert "Warning: this user has no home folder: set HOME: you will not" in result.stderr
    assert run("diff", str(tmp_path / "s.json"), str(tmp_path / "s.json")).exit_code == 0
    assert run("fix", "--replay", str(tmp_path / "s.json")).exit_code == 0
