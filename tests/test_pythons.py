"""Which Python is examined if none is named: the user's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import forked
import pytest
from stand_in import Doctor, environment, few_checks, run

from gpudoctor import doctor, pythons
from gpudoctor.files import opening
from gpudoctor.report import terminal


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """gpudoctor runs in a virtual environment at this path."""
    prefix = tmp_path / "tool"
    program(prefix / "bin")
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "executable", str(prefix / "bin" / "python3"))
    return prefix


def program(folder: Path, name: str = "python3") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("")
    (folder / name).chmod(0o755)
    return str(folder / name)


def found(**environment: str) -> list[tuple[str, str, bool]]:
    return [(one.path, one.found, one.is_own) for one in pythons.candidates(environment)]


def test_the_active_environment_comes_first_then_path_then_our_own(tool: Path, tmp_path: Path) -> None:
    first, second = program(tmp_path / "a"), program(tmp_path / "b", "python")
    path = os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")])
    assert found(VIRTUAL_ENV="/v", CONDA_PREFIX="/c", PATH=path) == [
        ("/v/bin/python", "VIRTUAL_ENV", False),
        ("/c/bin/python", "CONDA_PREFIX", False),
        (first, "python3 on PATH", False),
        (second, "python on PATH", False),
        (sys.executable, "no other Python found", True),
    ]


@pytest.mark.parametrize("receipt", ["uv-receipt.toml", "pipx_metadata.json"])
def test_the_environment_of_an_installed_tool_is_the_last_resort(tool: Path, tmp_path: Path, receipt: str) -> None:
    (tool / receipt).touch()
    other = program(tmp_path / "usr")
    path = os.pathsep.join([str(tool / "bin"), str(tmp_path / "usr")])
    assert found(PATH=path) == [(other, "python3 on PATH", False), (sys.executable, "no other Python found", True)]


def test_our_environment_on_path_is_examined_and_named_as_ours(tool: Path) -> None:
    assert found(PATH=str(tool / "bin"))[0] == (sys.executable, "python3 on PATH", True)


def test_an_environment_that_the_user_activated_is_not_called_ours(tool: Path) -> None:
    assert found(VIRTUAL_ENV=str(tool))[0] == (str(tool / "bin" / "python"), "VIRTUAL_ENV", False)


@pytest.mark.parametrize("path", [".", "", "bin"])
def test_a_program_in_the_current_folder_is_not_run(
    tool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, tmp_path / "bin"):
        program(folder)
    assert [each[1] for each in found(PATH=path)] == ["no other Python found"]


@pytest.mark.parametrize("command", ["check", "fix"])
def test_every_command_examines_it(command: str, tool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_checks(monkeypatch)
    stub = Doctor(monkeypatch)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "mine"))
    run(command)
    assert stub.asked[0][0] == str(tmp_path / "mine" / "bin" / "python")


def examined(tmp_path: Path, **settings: str) -> str:
    """What a real check reports, with everything that it says of the Python."""
    file = tmp_path / "taken.json"
    argv = [sys.executable, "-m", "gpudoctor", "check", "--level=quick", "--no-redact", "-o", os.devnull, "--format=json"]
    env = {name: value for name, value in environment().items() if name not in ("VIRTUAL_ENV", "PATH")} | settings
    done = forked.run([*argv, "--save", str(file)], env=env, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    report = doctor.judge_at_its_level(opening.taken_in(str(file)))
    return " ".join(terminal.render(report, width=100, verbose=True).split())


@pytest.mark.slow
def test_what_cannot_be_run_is_passed_over_and_said(tmp_path: Path) -> None:
    said = examined(tmp_path, VIRTUAL_ENV=str(tmp_path / "gone"), CONDA_PREFIX=sys.prefix, PATH="")
    assert "(CONDA_PREFIX; VIRTUAL_ENV cannot be used)" in said
    assert f"VIRTUAL_ENV: {tmp_path}/gone/bin/python cannot be run as a Python interpreter: No such file" in said
    assert "own environment" not in said


@pytest.mark.slow
def test_our_own_python_is_never_examined_silently(tmp_path: Path) -> None:
    said = examined(tmp_path, PATH="")
    assert "(no other Python found)" in said
    assert "This is gpudoctor's own environment: name the one that your programs use with --python PATH." in said
