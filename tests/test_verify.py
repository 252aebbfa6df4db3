"""`gpudoctor verify`: what failed before is looked at again."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stand_in import run
from test_report import HEALTHY, REPORT

from gpudoctor import remembered
from gpudoctor.checkup import Checkup
from gpudoctor.cli import check
from gpudoctor.model import Report, Result, Skip, Snapshot, Status
from gpudoctor.redaction import private_map
from gpudoctor.report import formats

BEFORE = replace(
    REPORT,
    target={**REPORT.target, "python": sys.executable},
    checks=(
        Result("memlock", Status.FAIL, "64 KiB", area="limits"),
        Result("numa", Status.BLOCKED, "needs nvml to be healthy", area="limits", blocked_by="nvml"),
        Result("nvml", Status.PASS, "it answers", area="driver"),
    ),
)
GONE = Result("gone-check", Status.WARN, "it is not any more", area="limits")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Path | Report | list[str]]:
    """The words of the second check, whose report is `now`."""
    (tmp_path / "before.json").write_text(formats.render("json", BEFORE))
    state: dict[str, Path | Report | list[str]] = {"file": tmp_path / "before.json", "now": HEALTHY}

    def checked(words: list[str], expectation: object = None) -> tuple[Checkup, int]:
        state["words"] = words
        now = state["now"]
        assert isinstance(now, Report)
        return Checkup(now, Snapshot("gpudoctor.snapshot/1", "0", "2026-11-21T03:00:00Z", {})), 0

    monkeypatch.setattr(check, "checked", checked)
    return state


def now(**statuses: Status) -> Report:
    checks = tuple(Result(name, status, f"{name} today", area="limits", blocked_by="nvml") for name, status in statuses.items())
    return replace(HEALTHY, checks=checks)


@pytest.mark.parametrize(
    ("statuses", "code", "words"),
    [
        ({"memlock": Status.PASS, "numa": Status.PASS}, 0, "2 of 2 fixed."),
        ({"memlock": Status.FAIL, "numa": Status.PASS}, 1, "1 of 2 fixed."),
        ({"memlock": Status.WARN, "numa": Status.PASS}, 1, "1 of 2 fixed."),
        ({"memlock": Status.PASS, "numa": Status.SKIP}, 3, "1 of 2 fixed; 1 could not be checked again."),
        ({"memlock": Status.ERROR, "numa": Status.PASS}, 3, "1 of 2 fixed; 1 could not be checked again."),
        ({"memlock": Status.PASS, "numa": Status.BLOCKED}, 3, "1 of 1 fixed; 1 check still blocked."),
    ],
)
def test_the_exit_code_is_whether_all_is_well(
    asked: dict[str, object], statuses: dict[str, Status], code: int, words: str
) -> None:
    asked["now"] = now(**statuses)
    result = run("verify", str(asked["file"]))
    assert result.exit_code == code
    assert words in result.stdout


@pytest.mark.parametrize(
    ("name", "reason", "code", "words"),
    [
        ("numa", Skip.NOT_APPLICABLE, 0, "2 of 2 fixed."),
        ("numa", Skip.NO_ANSWER, 3, "1 of 2 fixed; 1 could not be checked again."),
        ("memlock", Skip.NOT_APPLICABLE, 3, "1 of 2 fixed; 1 could not be checked again."),
    ],
)
def test_what_only_waited_may_have_nothing_to_look_at(
    asked: dict[str, object], name: str, reason: str, code: int, words: str
) -> None:
    then = now(memlock=Status.PASS, numa=Status.PASS)
    skipped = tuple(replace(each, status=Status.SKIP, reason=reason) if each.id == name else each for each in then.checks)
    asked["now"] = replace(then, checks=skipped)
    result = run("verify", str(asked["file"]))
    assert (result.exit_code, words in result.stdout) == (code, True)


def test_only_what_was_not_well_runs_again(asked: dict[str, object]) -> None:
    asked["now"] = now(memlock=Status.PASS, numa=Status.PASS)
    result = run("verify", str(asked["file"]))
    assert asked["words"] == ["--level", "full", "--only", "memlock,numa", "--python", sys.executable]
    assert "✗ fail    → ✓ pass    memlock: memlock today" in result.stdout


@pytest.mark.parametrize(
    ("target", "typed", "words"),
    [
        ({"kind": "image", "image": "nvcr.io/nvidia/pytorch:25.09-py3"}, ["--image", "x"], ["--image", "x"]),
        ({"kind": "host", "image": "x"}, ["--image", "x", "--gpus", "0,1"], ["--image", "x", "--gpus=0,1"]),
        ({"kind": "image", "image": "x"}, ["--image", "x", "--docker-option", "-e 'A=b c'"], None),
        (
            {"kind": "container", "image": "x", "container_name": "trainer"},
            ["--container", "trainer"],
            ["--container", "trainer"],
        ),
        ({"kind": "interpreter", "python": f"{sys.prefix}/../{Path(sys.prefix).name}/bin/{Path(sys.executable).name}"}, [], []),
        ({"python": "/nonexistent/python"}, ["--python", "/x/python"], ["--python", "/x/python"]),
        ({"taken": "2026-11-21T02:00:00Z", "python": sys.executable.replace("/bin/", "/dir-7/")}, [], []),
        ({"taken": "2026-11-21T03:00:00Z", "python": "/dir-9/python"}, [], ["--python", "/remembered/python"]),
        ({"taken": "2026-11-21T03:00:00Z", "python": sys.executable}, [], []),
    ],
)
def test_the_same_is_looked_at_again(
    asked: dict[str, object],
    target: dict[str, str],
    typed: list[str],
    words: list[str] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    known = private_map.Map(schema=private_map.SCHEMA, reports={"2026-11-21T02:00:00Z": {"dir": {"dir-7": "bin"}}})
    private_map.write(private_map.default_path(), known)
    remembered.remember("2026-11-21T03:00:00Z", "/remembered/python")
    Path(str(asked["file"])).write_text(formats.render("json", replace(BEFORE, target=target)))
    asked["now"] = now(memlock=Status.PASS, numa=Status.PASS)
    run("verify", str(asked["file"]), *typed)
    given = asked["words"]
    assert isinstance(given, list)
    if words is None:
        words = ["--image", "x", "--docker-option=-e", "--docker-option='A=b c'"]
    assert given[4:] == (words or ["--python", sys.executable])


def test_a_check_that_is_no_more_is_not_called_well(asked: dict[str, object]) -> None:
    file = Path(str(asked["file"]))
    file.write_text(formats.render("json", replace(BEFORE, checks=(*BEFORE.checks, GONE))))
    asked["now"] = now(memlock=Status.PASS, numa=Status.PASS)
    result = run("verify", str(file))
    assert "gone-check: this check does not exist in this version of gpudoctor" in result.stdout
    assert (result.exit_code, "2 of 2 fixed; 1 from checks that no longer exist." in result.stdout) == (3, True)
    file.write_text(formats.render("json", replace(BEFORE, checks=(GONE,))))
    result = run("verify", str(file))
    assert (result.exit_code, "do not exist in this version of gpudoctor" in result.stderr) == (2, True)


def test_where_nothing_could_be_checked_nothing_is_called_well(asked: dict[str, object]) -> None:
    skipped = (Result("memlock", Status.SKIP, "no answer", area="limits", reason=Skip.NO_ANSWER),)
    Path(str(asked["file"])).write_text(formats.render("json", replace(HEALTHY, checks=skipped)))
    result = run("verify", str(asked["file"]))
    assert (result.exit_code, "no check could run in" in result.stderr) == (2, True)
    assert "nothing failed" not in result.stderr


def test_a_redacted_name_is_not_looked_up(asked: dict[str, object]) -> None:
    target = {"kind": "image", "image": "registry.example.com/image-1:2"}
    Path(str(asked["file"])).write_text(formats.render("json", replace(BEFORE, target=target)))
    result = run("verify", str(asked["file"]))
    assert (result.exit_code, "image-1:2, a redacted name" in result.stderr) == (2, True)
    assert "words" not in asked


def test_an_image_is_to_be_typed_with_its_options(asked: dict[str, object]) -> None:
    target = {
        "kind": "image",
        "image": "x;id",
        "asked": ["--gpus", "all", "--docker-option", "--privileged", "--append", "/etc/x"],
    }
    file = str(asked["file"])
    Path(file).write_text(formats.render("json", replace(BEFORE, target=target)))
    result = run("verify", file)
    assert (result.exit_code, "words" in asked) == (2, False)
    line = f"gpudoctor verify {file} --image 'x;id' --gpus=all --docker-option=--privileged"
    assert result.stderr.endswith(f"type: {line}\n")


def test_as_many_gpus_are_expected_as_before(asked: dict[str, object]) -> None:
    target = {"python": sys.executable, "expected_gpus": 8}
    Path(str(asked["file"])).write_text(formats.render("json", replace(BEFORE, target=target)))
    asked["now"] = now(memlock=Status.PASS, numa=Status.PASS)
    run("verify", str(asked["file"]))
    given = asked["words"]
    assert isinstance(given, list)
    assert given[-2:] == ["--expect-gpus", "8"]


@pytest.mark.parametrize(
    "python", ["/bin/cat", "./evilpy", "evilpy", "../x/../evilpy", "/proc/self/exe", 5, ["/bin/cat"], {"a": 1}]
)
def test_no_program_that_a_file_names_is_started(
    python: object, asked: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evilpy").touch(0o755)
    Path(str(asked["file"])).write_text(formats.render("json", replace(BEFORE, target={"python": python})))
    assert run("verify", str(asked["file"])).exit_code == 2
    assert "words" not in asked


@pytest.mark.parametrize(("status", "code"), [(Status.PASS, 0), (Status.FAIL, 1), (Status.SKIP, 3)])
def test_what_failed_on_the_host_is_verified_too(asked: dict[str, object], status: Status, code: int) -> None:
    before = replace(BEFORE, checks=(), host=(Result("memlock", Status.FAIL, "64 KiB", area="limits"),))
    Path(str(asked["file"])).write_text(formats.render("json", before))
    asked["now"] = replace(now(memlock=Status.FAIL), host=(Result("memlock", status, "today", area="limits"),))
    result = run("verify", str(asked["file"]))
    assert (result.exit_code, "memlock (host): today" in result.stdout) == (code, True)


def test_another_python_is_not_taken_for_it(asked: dict[str, object]) -> None:
    Path(str(asked["file"])).write_text(
        formats.render("json", replace(BEFORE, target={"python": "/home/user-1/venv/bin/python"}))
    )
    result = run("verify", str(asked["file"]))
    assert result.exit_code == 2
    assert "was made with a Python that is not found here (its path is redacted). Name" in result.stderr
    assert "words" not in asked


def gpu(name: str, uuid: str) -> dict[str, object]:
    return {"gpus": [{"index": 0, "name": name, "uuid": uuid}]}


Case = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]
ELSEWHERE: dict[str, Case] = {
    "distribution": ({"distribution": "Ubuntu 24.04.3 LTS"}, {}, {"distribution": "Debian GNU/Linux 12"}, {}),
    "container": ({"container": "docker"}, {}, {"container": None}, {}),
    "architecture": ({"architecture": "x86_64"}, {}, {"architecture": "aarch64"}, {}),
    "model": ({}, gpu("NVIDIA A100", "GPU-1"), {}, gpu("NVIDIA H200", "GPU-2")),
    "UUID": ({}, gpu("NVIDIA H200", "GPU-1"), {}, gpu("NVIDIA H200", "GPU-2")),
}
HERE: dict[str, Case] = {
    "upgraded": ({"distribution": "Ubuntu 22.04"}, {}, {"distribution": "Ubuntu 24.04.3 LTS"}, {}),
    "GPU lost": ({}, gpu("NVIDIA A100", "GPU-1"), {}, {}),
    "redacted": ({}, gpu("NVIDIA H200", "GPU-00000001-0000-4000-8000-000000000001"), {}, gpu("NVIDIA H200", "GPU-2")),
}


@pytest.mark.parametrize("case", [*ELSEWHERE, *HERE])
def test_another_machine_is_not_taken_for_it(asked: dict[str, object], case: str) -> None:
    target, facts, target_now, facts_now = (ELSEWHERE | HERE)[case]
    before = replace(BEFORE, target={"python": sys.executable, **target}, facts=facts)
    Path(str(asked["file"])).write_text(formats.render("json", before))
    asked["now"] = replace(now(memlock=Status.PASS, numa=Status.PASS), target=target_now, facts=facts_now)
    result = run("verify", str(asked["file"]))
    assert (result.exit_code, "is from another machine: " in result.stderr) == ((2, True) if case in ELSEWHERE else (0, False))


def test_before_and_after_are_appended_to_a_ticket(asked: dict[str, object], tmp_path: Path) -> None:
    asked["now"] = now(memlock=Status.PASS, numa=Status.PASS)
    ticket = tmp_path / "ticket.md"
    ticket.write_text("### What happened\n")
    run("verify", str(asked["file"]), "--append", str(ticket))
    said = ticket.read_text()
    assert said.startswith("### What happened\n\n### Before and after\n")
    assert "| ✗ fail | ✓ pass | `memlock` | memlock today |" in said


@pytest.mark.parametrize("name", ["/dev/full", "/dev/null", "pipe"])
def test_what_is_no_file_is_not_appended_to(asked: dict[str, object], tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    result = run("verify", str(asked["file"]), "--append", str(tmp_path / name))
    assert result.exit_code == 2
    assert result.stderr == f"Error: --append {tmp_path / name}: not a regular file\n"
    assert "words" not in asked


def test_a_healthy_report_has_nothing_to_verify(asked: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "well.json").write_text(formats.render("json", HEALTHY))
    result = run("verify", str(tmp_path / "well.json"))
    assert (result.exit_code, "there is nothing to verify" in result.stderr) == (2, True)


@pytest.mark.slow
def test_on_this_machine(tmp_path: Path) -> None:
    """A real run: memlock can be read anywhere."""
    memlock = replace(BEFORE, checks=BEFORE.checks[:1], target={})
    (tmp_path / "before.json").write_text(formats.render("json", memlock))
    result = run("verify", str(tmp_path / "before.json"))
    assert result.exit_code in (0, 1)
    assert "memlock: " in result.stdout


@pytest.mark.slow
def test_what_is_as_it_was_has_its_token_before_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "zorvproject"
    folder.mkdir()
    python = folder / "python"
    python.symlink_to(sys.executable)
    run("check", "--only", "memlock,open-files", "--python", str(python), "-o", str(tmp_path / "one.json"), "--redact")
    report = json.loads((tmp_path / "one.json").read_text())
    report["checks"] = [{**one, "status": "fail" if one["id"] == "memlock" else one["status"]} for one in report["checks"]]
    (tmp_path / "one.json").write_text(json.dumps(report))
    for _ in range(25):  # however many reports were made since
        run("explain", "zorvik@n-a-1:~$ ls", "--redact")
    result = run("verify", str(tmp_path / "one.json"))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("zorvproject") == 2
    told = run("verify", str(tmp_path / "one.json"), "--redact").stdout
    assert "zorvproject" not in told
    assert set(re.findall(r"dir-\d+", told)) == set(re.findall(r"dir-\d+", report["target"]["python"]))


def test_the_result_for_programs(asked: dict[str, object], tmp_path: Path) -> None:
    asked["now"] = now(memlock=Status.PASS, numa=Status.BLOCKED)
    result = run("verify", str(asked["file"]), "--format", "json", "--no-redact")
    made = json.loads(result.stdout)
    assert (made["schema"], made["fixed"]) == ("gpudoctor.verify/1", False)
    assert {row["id"]: (row["before"], row["after"]) for row in made["checks"]}["memlock"] == ("fail", "pass")
    run("verify", str(asked["file"]), "-o", str(tmp_path / "again.json"), "--no-redact")
    assert json.loads((tmp_path / "again.json").read_text()) == made
