"""`gpudoctor check` and the command line around it: what is asked for, what comes out, which exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from stand_in import TAKEN, Doctor, environment, few_checks, python, raising, run
from test_report import HEALTHY, REPORT
from waiting import HOPELESS_SECONDS

import gpudoctor
from gpudoctor import doctor
from gpudoctor import model as m
from gpudoctor.cli import COMMANDS, check, started
from gpudoctor.cli.schema import PUBLISHED
from gpudoctor.errors import UserError, WorkError
from gpudoctor.files import snapshot
from gpudoctor.report import schema


@pytest.fixture(autouse=True)
def catalog_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    few_checks(monkeypatch)
    monkeypatch.delenv("GPUDOCTOR_DEBUG", raising=False)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Doctor:
    return Doctor(monkeypatch)


@pytest.mark.parametrize(
    ("report", "fail_on", "code"),
    [
        (REPORT, "fail", 1),
        (HEALTHY, "warn", 0),
        (replace(HEALTHY, diagnosis=REPORT.diagnosis[2:]), "fail", 0),
        (replace(HEALTHY, diagnosis=REPORT.diagnosis[2:]), "warn", 1),
        (replace(HEALTHY, checks=REPORT.checks), "fail", 3),
    ],
    ids=["fail", "healthy", "warn", "warn counts", "broken check"],
)
def test_exit_code_is_the_verdict(stub: Doctor, report: m.Report, fail_on: str, code: int) -> None:
    stub.report = report
    assert run("check", "--fail-on", fail_on).exit_code == code


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["chek"], "Did you mean 'check'?"),
        (["check", "--level", "deep"], "'deep' is not one of"),
        (["check", "--level", "quik"], "Did you mean 'quick'?"),
        (["plan", "torhc"], "Did you mean 'torch'?"),
        (["check", "--timeout", "0.5"], "'0.5' is not a time between 1s and 1h, such as 30, 30s or 5m"),
        (["check", "--measure-timeout", "11h"], "'11h' is not a time between 1s and 10h"),
        (["burn", "--minutes", "5s"], "'5s' is not a time between 6s and 7d, such as 10, 90s or 1h"),
        (["burn", "--level", "full", "--acceptance"], "use --minutes instead of --level"),
        (["why", "--timeout", "1w", "--", "true"], "'1w' is not a time between 0.1s and 1d"),
        (["check", "--expect-gpus", "-1"], "-1 is not in the range"),
        (["check", "--only", "batery"], "Error: unknown check 'batery'; did you mean battery?\n"),
        (["check", "--skip", "pressure,nonsense"], "Error: unknown check 'nonsense'\n"),
        (["check", "--replay", "a", "--save", "a"], "--save and --replay are the same file"),
        (["check", "--replay", "a", "--python", "b"], "--python cannot be used with it"),
        (["check", "-o", "a.html", "-o", "b.md"], "-o was given 2 times, but only one file is written. For more formats: --save"),
        (["report", "-o", "a.html", "-o", "a.html"], "-o was given 2 times, but only one file is written.\n"),
        (["check", "--save", "a", "--save", "b"], "--save was given 2 times"),
        (["check", "--replay", "a", "-o", "a"], "-o and the snapshot are the same file"),
        (["check", "--python", ""], "--python is empty"),
        (["check", "--replay", "/nowhere/at/all"], "Error: cannot read /nowhere/at/all: No such file or directory\n"),
        (["check", "--python", "/etc/passwd"], "Error: /etc/passwd cannot be run as a Python"),
        (["explain", "battery-flt"], "Error: unknown check, problem or practice 'battery-flt'; did you mean battery-flat"),
    ],
)
def test_wrong_usage(args: list[str], words: str) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_a_foreign_snapshot_is_refused(tmp_path: Path) -> None:
    for content in ("", "[]", '{"schema": "other/1"}', "\xff"):
        file = tmp_path / "foreign.json"
        file.write_text(content, encoding="latin-1")
        result = run("check", "--replay", str(file))
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_options_reach_the_doctor(stub: Doctor) -> None:
    run("check", "--timeout", "3", "--expect-gpus", "8", "--python", "/opt/python")
    assert stub.asked == [("/opt/python", 3.0, {"gpus": 8})]


def test_defaults(stub: Doctor) -> None:
    run("check")
    assert stub.asked == [(f"{sys.prefix}/bin/python", 20.0, {})]


def test_only_and_skip_take_lists() -> None:
    context = check.command.make_context("check", ["--only", "a, b", "--only", "c,"])
    assert context.params["only"] == ("a", "b", "c")


SHOWS_FIXES = {"json": "After the fixes: gpudoctor verify {}\n"}


@pytest.mark.parametrize(
    ("form", "start"), [("text", "gpudoctor 9.8.7 on Ubuntu"), ("json", '{\n  "schema"'), ("markdown", "## gpudoctor: ✗ fail")]
)
def test_formats(stub: Doctor, tmp_path: Path, form: str, start: str) -> None:
    shown = run("check", "--format", form)
    written = run("check", "--format", form, "-o", str(tmp_path / "report"))
    assert shown.stdout.startswith(start)
    assert written.stdout == ""
    said = f"Wrote {tmp_path / 'report'}, not redacted: --redact makes it safe to share\n"
    assert written.stderr.endswith(said + SHOWS_FIXES.get(form, "").format(tmp_path / "report"))
    assert (tmp_path / "report").read_text() == shown.stdout.partition("\nNext: ")[0]


def test_save_then_replay(stub: Doctor, tmp_path: Path) -> None:
    file = str(tmp_path / "machine.json")
    assert run("check", "--save", file).exit_code == 1
    assert run("check", "--replay", file, "--expect-gpus", "2").exit_code == 1
    assert len(stub.asked) == 1
    chosen = m.Reply("ok", {"found": "VIRTUAL_ENV", "own": False, "unusable": {}})
    taken = replace(TAKEN, level="quick", replies={**TAKEN.replies, "chosen-python": chosen})
    assert stub.judged == [replace(taken, expected={}), replace(taken, expected={"gpus": 2})]


def test_replay_keeps_what_was_expected(stub: Doctor, tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_bytes(snapshot.dump(TAKEN))
    run("check", "--replay", str(file))
    assert stub.judged == [TAKEN]


def test_the_snapshot_survives_a_bug_in_judging(stub: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "judge", lambda *_: 1 / 0)
    result = run("check", "--save", str(tmp_path / "s"))
    assert result.exit_code == 3
    assert (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UserError("no Python"), 2, "Error: no Python\n"),
        (WorkError("no room"), 3, "Error: no room\n"),
        (KeyboardInterrupt(), 130, "Interrupted; nothing was written.\n"),
        (ValueError("odd\nvery"), 3, f"Error: internal error in gpudoctor {gpudoctor.__version__}: ValueError: odd (GPUDOCTOR"),
    ],
)
def test_no_report(stub: Doctor, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str) -> None:
    monkeypatch.setattr("gpudoctor.collect.collect", raising(error))
    result = run("check")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1)
    assert result.stderr.startswith(line)


def test_debug_shows_where_a_bug_is(stub: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUDOCTOR_DEBUG", "1")
    monkeypatch.setattr("gpudoctor.collect.collect", raising(ValueError("odd")))
    result = run("check")
    assert result.exit_code == 3
    assert "Traceback" in result.stderr


def test_an_interrupt_names_what_was_written(stub: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "judge", raising(KeyboardInterrupt()))
    result = run("check", "--save", str(tmp_path / "s"))
    assert result.stderr.endswith(f"Interrupted; only {tmp_path / 's'} was written.\n")


@pytest.mark.slow
def test_interrupt_of_a_real_process(tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text(
        "import time\nimport gpudoctor.collect as module\nfrom gpudoctor import catalog\nfrom gpudoctor.cli import main\n"
        "def collect(*args):\n    print('ready', flush=True)\n    while True:\n        time.sleep(0.05)\n"
        "catalog.checks = dict\nmodule.collect = collect\nmain(['check'])\n"
    )
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout
        ready = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=HOPELESS_SECONDS)
    assert (ready, process.returncode) == ("ready\n", 130)
    assert (stdout, stderr) == ("", "Interrupted; nothing was written.\n")


def test_help_imports_nothing_heavy() -> None:
    process = python("-X", "importtime", "-m", "gpudoctor", "--help")
    imported = {line.rsplit("|", 1)[-1].strip() for line in process.stderr.splitlines()}
    assert "gpudoctor.cli" in imported
    assert imported & {"rich", "msgspec", "yaml", "docker", "pynvml", "gpudoctor.model"} == set()


def test_help_lists_every_command() -> None:
    shown = run("--help").stdout
    for name in COMMANDS:
        assert f"\n  {name} " in shown
        assert run(name, "--help").exit_code == 0


def test_module_and_version() -> None:
    process = python("-m", "gpudoctor", "--version")
    assert process.stdout == f"gpudoctor, version {gpudoctor.__version__}\n"


def test_schema_is_json() -> None:
    assert json.loads(run("schema").stdout)["title"] == "gpudoctor.report/1"
    titles = [json.loads(run("schema", of).stdout)["title"] for of in schema.SCHEMAS]
    assert titles == [f"gpudoctor.{of}/1" for of in PUBLISHED]


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ((m.Status.PASS, m.Status.SKIP), 0),
        ((m.Status.SKIP,), 3),
        ((), 3),
        ((m.Status.PASS, m.Status.ERROR), 3),
        ((m.Status.WARN,), 0),
    ],
)
def test_a_machine_that_nobody_looked_at_is_not_healthy(stub: Doctor, statuses: tuple[m.Status, ...], code: int) -> None:
    rows = tuple(m.Result(f"check-{number}", status, "") for number, status in enumerate(statuses))
    stub.report = replace(REPORT, diagnosis=(), checks=rows)
    assert run("check").exit_code == code


@pytest.mark.parametrize("option", ["--only", "--skip"])
def test_an_empty_list_of_checks_is_refused(option: str) -> None:
    result = run("check", option, "")
    assert result.exit_code == 2
    assert "no check given" in result.stderr


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("report", ""), "FILE"),
        (("report", "--python", ""), "--python"),
        (("report", "--bundle", ""), "--bundle"),
        (("verify", ""), "REPORT"),
        (("verify", "a.json", "--append", ""), "--append"),
        (("diff", "", ""), "A"),
        (("check", "--replay", ""), "--replay"),
        (("check", "--log", ""), "--log"),
        (("check", "-o", ""), "-o"),
        (("fix", "--replay", ""), "--replay"),
        (("fix", "--python", ""), "--python"),
        (("baseline", "save", ""), "SNAPSHOT"),
        (("images", "lock", "--file", ""), "--file"),
    ],
)
def test_an_empty_name_is_no_file(stub: Doctor, words: tuple[str, ...], name: str) -> None:
    result = run(*words)
    assert (result.exit_code, result.stderr) == (2, f"Error: {name} is empty\n")
    assert stub.asked == []


@pytest.mark.parametrize("option", ["-o", "--save", "--replay"])
def test_a_dash_is_no_file(option: str) -> None:
    assert run("check", option, "-").exit_code == 2


def test_what_hooks_of_its_own_python_set_is_undone() -> None:
    given = {"CUDA_VISIBLE_DEVICES": "0", "LANG": "C", "HOME": "/root"}
    hooked = {"CUDA_VISIBLE_DEVICES": "", "NCCL_P2P_DISABLE": "1", "LANG": "C.UTF-8", "HOME": "/root", "TMPDIR": "/x"}
    now = {**hooked, "TMPDIR": "/y"}
    started.restore(now, given, hooked)
    assert now == {"CUDA_VISIBLE_DEVICES": "0", "LANG": "C.UTF-8", "HOME": "/root", "TMPDIR": "/y"}
    started.restore(now, {}, hooked)
    assert now["CUDA_VISIBLE_DEVICES"] == "0"
