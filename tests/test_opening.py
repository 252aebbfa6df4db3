"""`gpudoctor report FILE`: what gpudoctor wrote opens again, and what it did not write is refused in a line."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import forked
import machine
import pytest
from each import each
from stand_in import environment, run
from test_report import REPORT

import gpudoctor
from gpudoctor.checkup import load
from gpudoctor.errors import UserError
from gpudoctor.files import opening, snapshot
from gpudoctor.model import Reply, Status
from gpudoctor.report import formats

REPORTS = Path(__file__).parent / "reports"
SNAPSHOT = Path(__file__).parent / "machines" / "no-gpu" / "snapshot.json"
SMALL = b'{"schema": "gpudoctor.snapshot/1", "version": "1", "taken": "%b", "replies": {"a": {"status": "ok", "value": %b}}}'


def test_the_first_report_ever_still_opens() -> None:
    """Of the first version, before there were figures, hosts of containers, evidence and ways back."""
    first = load(REPORTS / "first.json")
    assert first.report.status is Status.FAIL
    assert first.snapshot is None
    assert formats.render("junit", first.report)


def test_a_report_is_itself_again(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(formats.render("json", REPORT))
    again = load(tmp_path / "report.json")
    assert formats.render("json", again.report) == formats.render("json", REPORT)


@pytest.mark.parametrize("packed", [False, True])
def test_a_snapshot_is_judged(tmp_path: Path, packed: bool) -> None:
    file = tmp_path / "machine"
    file.write_bytes(gzip.compress(SNAPSHOT.read_bytes()) if packed else SNAPSHOT.read_bytes())
    opened = load(file)
    assert opened.snapshot == opening.taken_in(str(SNAPSHOT))
    assert "no-nvidia-gpu" in {entry.problem for entry in opened.report.diagnosis}


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """Measured at level full, by a gpudoctor that did not write that down."""
    (tmp_path / "machine.json").write_bytes(snapshot.dump(machine.load("ptxas-crashes")))
    return tmp_path / "machine.json"


def warnings(*args: object) -> list[str]:
    plain = json.loads(run(*map(str, args), "--format", "json", "--no-redact").stdout)
    return [entry["problem"] for entry in plain["diagnosis"]]


@pytest.mark.slow
def test_what_was_measured_at_level_full_is_judged_so(full: Path, tmp_path: Path) -> None:
    assert warnings("report", full) == warnings("check", "--replay", full) == ["compiler-crashes"]
    assert warnings("report", full, "--level", "standard") == warnings("check", "--replay", full, "--level", "quick") == []
    assert [entry.problem for entry in gpudoctor.load(full).diagnosis] == ["compiler-crashes"]
    assert gpudoctor.load(full, "standard").status is Status.PASS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report.html", "report.tar.gz"])
@pytest.mark.parametrize("level", [(), ("--level", "standard")])
def test_a_page_and_a_bundle_open_as_they_were_written(full: Path, tmp_path: Path, name: str, level: tuple[str, ...]) -> None:
    run("report", str(full), "-o", str(tmp_path / name), *level)
    assert warnings("report", tmp_path / name) == warnings("report", full, *level)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "level"),
    [
        ("--level quick", "quick"),
        ("--level full --skip memory-pattern", "full"),
        ("--only memory-pattern", "full"),
        ("--only driver-version", "quick"),
    ],
)
def test_the_level_is_kept_with_the_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, level: str) -> None:
    monkeypatch.setattr("gpudoctor.collect.collect", lambda *asked: machine.load("no-gpu"))
    run("check", *words.split(), "--save", str(tmp_path / "machine.json"))
    assert opening.taken_in(str(tmp_path / "machine.json")).level == level


@pytest.mark.slow
def test_a_level_that_is_none_is_not_believed(full: Path) -> None:
    full.write_bytes(full.read_bytes().replace(b'"level": ""', b'"level": "deepest"'))
    assert opening.taken_in(str(full)).level == "deepest"
    assert warnings("report", full) == ["compiler-crashes"]


REFUSED = [
    (b"", "is empty: expected a snapshot"),
    (b"hello", "contains no gpudoctor snapshot: expected"),
    (b"[]", "contains no gpudoctor snapshot"),
    (b'{"schema": 7}', "was not written by gpudoctor: expected"),
    (b'{"schema": "gpudoctor.snapshot/9"}', "its schema is 'gpudoctor.snapshot/9'"),
    (b'{"schema": "gpudoctor.report/9"}', "is not a report that this version can read: its schema is 'gpudoctor.report/9', not "),
    (b'{"schema": "gpudoctor.report/0"}', "is not a report that this version can read: its schema is 'gpudoctor.report/0', not "),
    (b'{"schema": "gpudoctor.report/1"}', "is a broken gpudoctor report"),
    (b"<!doctype html><p>hello", "is a page without a snapshot of gpudoctor, such as one made of a report alone: pass"),
    (b"\x1f\x8bhello", "cannot read"),
    (gzip.compress(SNAPSHOT.read_bytes())[:-20], "is not a complete gpudoctor snapshot"),
    (b'{"a":' * 9000 + b"1" + b"}" * 9000, "levels deep"),
    (b'{"schema": "gpudoctor.report/1", "a": ' + b"[" * 200 + b"]" * 200 + b"}", "levels deep"),
    (SMALL % (b"now", b"1"), "is not a valid time"),
    (SMALL % (b"2026-11-21T03:00:00Z", b"[" * 200 + b"]" * 200), "levels deep"),
    (json.dumps({"schema": "gpudoctor.\x1b]0;x\x07" + "y" * 9000}).encode(), r"its schema is 'gpudoctor.\x1b]0;x\x07yyy"),
    (b'{"schema": "\xff"}', "is not a complete gpudoctor snapshot or report ("),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_another_file_is_refused_in_a_line(tmp_path: Path, number: int) -> None:
    content, words = REFUSED[number]
    file = tmp_path / "file"
    file.write_bytes(content)
    result = run("report", str(file))
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert len(result.stderr) < 500 + len(str(file))
    assert result.stderr.strip().isprintable()


def test_a_page_of_a_report_alone_says_what_to_pass_instead(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(formats.render("json", REPORT))
    assert run("report", str(tmp_path / "report.json"), "-o", str(tmp_path / "report.html")).exit_code == 0
    result = run("report", str(tmp_path / "report.html"))
    assert result.exit_code == 2
    assert "such as one made of a report alone: pass what it was made of, a report as JSON" in result.stderr
    assert "HTML" not in result.stderr


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("taken", "now @all", "is not a valid time"),
        ("references", ["javascript:alert(1)"], "is not a URL"),
        ("references", ["https://x.org/> @all <a"], "is not a URL"),
        ("status", "\x1b[31mfail", "is a broken gpudoctor report"),
    ],
)
def test_a_report_that_somebody_changed_is_refused(tmp_path: Path, place: str, value: object, words: str) -> None:
    plain = json.loads(formats.render("json", REPORT))
    {"taken": plain["target"], "status": plain}.get(place, plain["diagnosis"][0])[place] = value
    (tmp_path / "report.json").write_text(json.dumps(plain))
    with pytest.raises(UserError, match=words) as failure:
        load(tmp_path / "report.json")
    assert str(failure.value).isprintable()


@pytest.mark.parametrize("form", ["text", "markdown", "html", "junit"])
def test_a_report_commands_no_terminal_and_calls_nobody(tmp_path: Path, form: str) -> None:
    evil = "\x1b]0;owned\x07\u202e@all #1 GH-1 &commat;all &#64;all <b>"
    plain = json.loads(formats.render("json", REPORT))
    plain["measured"]["models"] = [{"size": evil, "precision": evil, "gpus": 1, "gigabytes": 1.0, "least_milliseconds": 1.0}]
    plain["diagnosis"][0]["title"] = evil
    plain["diagnosis"][0]["fixes"][0]["needs"] = [evil]
    (tmp_path / "report.json").write_text(json.dumps(plain))
    rendered = formats.render(form, load(tmp_path / "report.json").report, None)
    assert not {"\x1b", "\x07", "\u202e"} & {*rendered}
    if form == "markdown":
        assert [evil for evil in ("@all", "#1", "GH-1", " &commat", " &#64", "7e<b>") if evil in rendered] == []
    if form == "html":
        assert "<b>" not in rendered


@pytest.mark.parametrize("args", [["--format", "markdown"], ["--for", "github"], ["--format", "json"]])
def test_a_report_that_was_not_redacted_is_when_it_goes_on(tmp_path: Path, args: list[str]) -> None:
    plain = json.loads(formats.render("json", REPORT))
    plain["diagnosis"][0]["why"] = "HF_TOKEN=hf_QqWwEeRrTtYyUuIi in /home/zorvik/x"
    (tmp_path / "report.json").write_text(json.dumps(plain))
    result = run("report", str(tmp_path / "report.json"), *args)
    assert "1 secret, 1 user" in result.stderr
    assert "zorvik" not in result.stdout + result.stderr
    assert "hf_Qq" not in result.stdout
    assert "zorvik" in run("report", str(tmp_path / "report.json"), "--no-redact", *args).stdout


def test_a_file_without_an_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_BYTES", 1 << 20)
    with pytest.raises(UserError, match="/dev/zero is larger than 1 MiB"):
        opening.taken_in("/dev/zero")


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_BYTES", 1 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"{" + b" " * (2 << 20)))
    with pytest.raises(UserError, match="larger than 1 MiB"):
        opening.taken_in(str(tmp_path / "bomb.gz"))


@pytest.mark.parametrize("name", ["report.json", "report.xml", "report.sarif", "report.prom", "report.md", "report.txt"])
def test_the_name_of_the_file_says_the_format(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    assert run("report", str(SNAPSHOT), "-o", str(file)).exit_code == 0
    opened = load(SNAPSHOT)
    form = formats.of(file)
    assert form
    assert file.read_text() == formats.render(form, opened.report, opened.snapshot)


@each(
    ("args", "words"),
    [
        (["--for", "pytorch", "--format", "html"], "--format cannot be used with it"),
        (["--bundle", "b.tar.gz", "-o", "c"], "--format, --for, --copy and -o cannot be used with it"),
        (["--copy", "-o", "c"], "--copy and -o cannot be used together"),
        (["--for", "nccl", "-o", "c.tar.gz"], "c.tar.gz is the name of a bundle"),
        (["--for", "nccl", "-o", "c.html"], "c.html means html"),
        (["--bundle", "c.zip"], "its name must end in .tar.gz or .tgz"),
        (["-o", "-"], "- is not a file name"),
        (["file", "--python", "p"], "--python cannot be used with FILE"),
        (["file", "--only", "memlock"], "--only cannot be used with FILE"),
        (["file", "--timeout", "20"], "--timeout cannot be used with FILE"),
        (["--image", "a", "--container", "b"], "--image and --container cannot be used together"),
        (["--only", "no-such-check"], "unknown check 'no-such-check'"),
        (["nowhere.json"], "cannot read nowhere.json: No such file"),
        (["--for", "windows"], "'windows' is not one of"),
    ],
)
def test_wrong_usage(args: list[str], words: str) -> None:
    result = run("report", *args)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.slow
def test_standard_input_is_read_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gpudoctor"]
    given = SNAPSHOT.read_bytes()
    done = forked.run([*command, "diff", "-", "-"], input=given, capture_output=True, env=environment())
    assert (done.returncode, done.stderr.startswith(b"Error: - is empty, or was already read")) == (2, True)
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *command, "report", "-"]
    done = subprocess.run(closed, capture_output=True, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (2, b"Error: cannot read -: standard input is closed\n")


@pytest.mark.parametrize(
    "facts",
    [
        {"gpus": 3},
        {"gpus": ["x"]},
        {"gpus": [{"name": []}]},
        {"pci_gpus": 1},
        {"toolkits": []},
        {"packages": "x"},
        {"driver_is_open": []},
    ],
)
def test_a_report_whose_facts_somebody_changed_is_refused(tmp_path: Path, facts: dict[str, object]) -> None:
    plain = json.loads(formats.render("json", REPORT))
    plain["facts"] |= facts
    (tmp_path / "report.json").write_text(json.dumps(plain))
    with pytest.raises(UserError, match="is a broken gpudoctor report"):
        load(tmp_path / "report.json")


def test_replay_takes_a_report_for_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps({"schema": "gpudoctor.report/1"}))
    result = run("check", "--replay", str(tmp_path / "report.json"))
    assert result.exit_code == 2
    assert "is a report, not a snapshot" in result.stderr


def test_a_file_of_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(opening, "MOST_VALUES", 100)
    file = tmp_path / "machine.json"
    file.write_bytes(SMALL % (b"2026-11-21T03:00:00Z", b"[" + b"[]," * 100 + b"1]"))
    with pytest.raises(UserError, match="has more than 100 values"):
        opening.taken_in(str(file))
    file.write_bytes(SMALL % (b"2026-11-21T03:00:00Z", b'"' + b'[],\\"' * 100 + b'"'))
    assert opening.taken_in(str(file)).replies["a"].value == '[],"' * 100


@pytest.mark.parametrize("name", ["memlock|x", "memlock\x1b[2J", "a b", "x" * 300])
def test_a_name_that_no_check_has_is_refused(tmp_path: Path, name: str) -> None:
    plain = json.loads(formats.render("json", REPORT))
    plain["checks"][0]["id"] = name
    (tmp_path / "report.json").write_text(json.dumps(plain))
    with pytest.raises(UserError, match="a check or a problem is not named "):
        opening.read(str(tmp_path / "report.json"))


def test_tables_of_a_report_need_not_be_whole(tmp_path: Path) -> None:
    plain = json.loads(formats.render("json", REPORT))
    plain["measured"]["models"] = [
        {"size": size, "precision": precision, "gigabytes": 1.0, "gpus": 1, "least_milliseconds": 1.0}
        for size, precision in (("7B", "fp16"), ("70B", "fp8"), ("70B", "int4"))
    ]
    (tmp_path / "report.json").write_text(json.dumps(plain))
    assert run("report", str(tmp_path / "report.json"), "--format", "text").exit_code in (0, 1)


def test_an_endless_line_of_a_snapshot_is_cut() -> None:
    taken = machine.load("no-gpu")
    of_dmesg = {"a": ["x" * 100_000, "\n" * 100_000, "short\n" * 10_000]}
    data = snapshot.dump(replace(taken, replies={**taken.replies, "not-known": Reply("ok", of_dmesg)}))
    long, blank, short = opening.parsed(data, "x").replies["not-known"].value["a"]  # type: ignore[union-attr]
    assert (len(long) <= 20_003, len(blank) < 200, short) == (True, True, "short\n" * 10_000)
